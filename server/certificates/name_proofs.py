"""Names that are being proved just now, in memory alone: what an authority is shown that comes to look. After a crash they are proved
anew, by the same order. What of it other nodes must know is told to them (`shared_certificate.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import msgspec
import trio

from server.certificates.certificate_troubles import TLS_ALPN
from server.certificates.kept_certificates import CannotKeep
from server.certificates.x509_certificates import proof_context

# To have what is shown no more taken away elsewhere, where nobody depends on it.
_TAKEN_AWAY_SECONDS: Final = 2.0


class ShownProof(msgspec.Struct, frozen=True, kw_only=True):
    way: str
    name: str
    token: str
    key_authorization: str

    def __repr__(self) -> str:
        return f"<ShownProof {self.way} {self.name}>"


async def _nobody(shown: Sequence[ShownProof]) -> None:
    """There is nobody else whom an authority could meet."""


class Proofs:
    """Implements `server.transport.http.issued_tls.Challenges`, and is asked for tokens by whoever answers on port 80."""

    def __init__(self) -> None:
        # Has others show them as well: done when they do. May raise `CannotKeep`.
        self.tell: Callable[[Sequence[ShownProof]], Awaitable[None]] = _nobody
        self._shown: tuple[ShownProof, ...] = ()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._tokens: dict[str, tuple[str, str]] = {}
        self._seen: set[str] = set()

    def __bool__(self) -> bool:
        """Whether TLS is to be listened to more closely."""
        return bool(self._contexts)

    def context_for(self, name: str) -> ssl.SSLContext | None:
        found = self._contexts.get(name)
        if found is not None:
            self._seen.add(name)
        return found

    def key_authorization(self, token: str) -> str | None:
        found = self._tokens.get(token)
        if found is None:
            return None
        self._seen.add(found[0])
        return found[1]

    def was_seen(self, name: str) -> bool:
        """Whether anybody came to look at the proof of this name, since it was shown last."""
        return name in self._seen

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Whatever is shown inside is taken away at the end, however that comes."""
        self._seen.clear()
        try:
            yield
        finally:
            told, self._shown = bool(self._shown), ()
            self._contexts, self._tokens = {}, {}
            if told:
                with trio.move_on_after(_TAKEN_AWAY_SECONDS, shield=True), suppress(CannotKeep):
                    await self.tell(())

    async def show(self, way: str, name: str, token: str, key_authorization: str) -> None:
        proof = ShownProof(way=way, name=name, token=token, key_authorization=key_authorization)
        await _add(proof, self._contexts, self._tokens)
        self._shown = (*self._shown, proof)
        await self.tell(self._shown)

    async def take(self, shown: Sequence[ShownProof]) -> None:
        """Those with which another node proves names, in place of all of before."""
        contexts: dict[str, ssl.SSLContext] = {}
        tokens: dict[str, tuple[str, str]] = {}
        for proof in shown:
            await _add(proof, contexts, tokens)
        self._contexts, self._tokens = contexts, tokens


async def _add(
    proof: ShownProof, contexts: dict[str, ssl.SSLContext], tokens: dict[str, tuple[str, str]]
) -> None:
    if proof.way == TLS_ALPN:
        # From a thread: a key is made for it.
        make = partial(proof_context, proof.name, proof.key_authorization)
        contexts[proof.name] = await trio.to_thread.run_sync(make)
    else:
        tokens[proof.token] = (proof.name, proof.key_authorization)
