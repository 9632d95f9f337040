"""Every bound of the connection layer, with its unit and its reason. Rate limits of callers are not here."""

from __future__ import annotations

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    # A request line and its headers. Bearer tokens, cookies and forwarded headers together stay well below.
    head_bytes: int = 32 * 1024
    # Real clients send 10 to 30; each one costs memory and time.
    header_count: int = 100
    # Authorization requests with a signed request object are the longest honest targets, about 4 KiB.
    target_bytes: int = 8 * 1024
    # One JSON-RPC message.
    body_bytes: int = 2 * 1024 * 1024
    # Trailers are ignored, so they need only be bounded.
    trailer_bytes: int = 8 * 1024

    # From accept, or from the first byte of a later request, to the empty line. Total, so dripping does not help.
    head_seconds: float = 10.0
    # From the first wait for body bytes to the last byte of the body. Total as well.
    body_seconds: float = 30.0
    # Above the 60 s at which common proxies drop their idle upstream connections, so that they close first.
    idle_seconds: float = 75.0
    # A handshake is two round trips and one signature.
    handshake_seconds: float = 10.0

    # The TLS layer encrypts what it is given in one go: a piece bounds that copy and its time on the loop.
    write_piece_bytes: int = 64 * 1024
    # No byte at all taken by the peer for so long: it has stopped reading.
    write_stall_seconds: float = 15.0
    # The slowest reader served: below this, measured over time spent waiting for it, a reader is an attack on memory.
    write_floor_bytes_per_second: int = 1024
    write_window_seconds: float = 60.0
    # And it grows with what is sent at once: a large answer is to be read within this time.
    write_whole_seconds: float = 300.0
    # Of what is sent at once in several pieces, over all connections: a dozen of the largest answers. Beyond it whoever has waited
    # for longest is cut.
    unsent_bytes: int = 64 * 1024 * 1024

    # An answer sent before its request was read: up to so much is read off to keep the connection …
    discard_bytes: int = 64 * 1024
    # … and beyond that it is closed, reading on so long and so far that the peer can still read its answer.
    linger_seconds: float = 30.0
    linger_bytes: int = 16 * 1024 * 1024

    # Bytes of later requests kept while one is being served; more stays with the peer.
    pipeline_bytes: int = 64 * 1024

    # 10 to 20 KiB each while idle. One process answers far more calls than these can ask for.
    connections: int = 4096
    # One browser opens 6, one busy gateway some dozens. Loopback and trusted proxies stand for many callers: exempt.
    connections_per_ip: int = 256
    # Beyond them, for those who ask whether the server lives: whoever is refused that ends a process that is well.
    vital_connections: int = 8
    # Each is free again after so long, whatever its peer does.
    vital_seconds: float = 2.0
    # Files, outgoing connections and child processes, next to the connections served.
    spare_descriptors: int = 512
    # The kernel's queue of connections not yet accepted: a burst of clients that all reconnect after a restart.
    backlog: int = 1024

    # How long work in flight may go on after the drain began.
    drain_seconds: float = 10.0
    # After that, for the answers to what was cut off then. Nothing that is no call has any.
    last_word_seconds: float = 0.0
    # From the drain's beginning on, what a peer has for whatever it owes: the rest of a head or body, the reading of a refusal. Honest ones are
    # about to have done it, and from the others nothing will ever come.
    drain_owed_seconds: float = 1.0
    # And a reader has stopped reading when it has taken nothing for so long.
    drain_stall_seconds: float = 2.0
    # How often deadlines are looked at: the lateness of every deadline above.
    tick_seconds: float = 1.0

    def while_draining(self) -> HttpLimits:
        owed = self.drain_owed_seconds
        return msgspec.structs.replace(
            self,
            handshake_seconds=min(owed, self.handshake_seconds),
            head_seconds=min(owed, self.head_seconds),
            body_seconds=min(owed, self.body_seconds),
            linger_seconds=min(owed, self.linger_seconds),
            write_stall_seconds=min(self.drain_stall_seconds, self.write_stall_seconds),
        )
