"""Every number of identity, with its unit and its reason. The server's configuration may change them at start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE

# Audit rows for refusals of nobody in particular, from all networks together: one prefix of IPv6 is thousands of networks. Beyond it
# they are counted, and one row a minute says how many they were. What that comes to stands in docs/security.md, and is tested.
REFUSALS_PER_MINUTE = 120


class DevicePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the device grant (RFC 8628): requests for codes, and polling."""

    lifetime_ms: int = 600 * SECOND  # long enough to find a phone, short enough that guessing stays hopeless
    interval_seconds: int = 5
    own_interval_seconds: int = (
        2  # of our own client, whose person looks at the screen; it takes longer by itself after a while
    )
    interval_step_seconds: int = 5  # §3.5: added by every slow_down
    # Some clients add a pause of their own per slow_down; without a roof they would hardly poll any more.
    interval_cap_seconds: int = 30
    # Clients round, and the first hop may have been the slower one.
    poll_tolerance_ms: int = 1 * SECOND
    live_codes_per_requester: int = 5  # per client and network: a person has one or two logins under way
    codes_per_minute_per_network: int = 20
    # Where a person may say yes: in any browser, in one on the asking device's network, or at the server's own terminal only.
    approve_from: Literal["anywhere", "same-network", "terminal"] = "anywhere"
    codes_per_neighbourhood: int = 200  # in a code's lifetime: one IPv6 prefix is thousands of networks
    live_codes: int = 1_000  # with 34.6 bits per code a blind guess then hits with 4 * 10^-8

    def __post_init__(self) -> None:
        if not 60 * SECOND <= self.lifetime_ms <= 900 * SECOND:
            raise ValueError("a device code lives 60 to 900 seconds")


class TokenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The lifetimes of tokens, codes and consents. Revocation is immediate, because every request checks its grant."""

    access_ms: int = 60 * MINUTE
    refresh_idle_ms: int = 30 * DAY
    device_login_ms: int = 30 * DAY  # absolute: then a person approves again
    code_login_ms: int = 90 * DAY  # of a login through a browser
    logins_per_person: int = 500  # that live; beyond it the one that was not used for longest makes room
    code_ms: int = 60 * SECOND  # an authorization code: one redirect and one request
    consent_ms: int = 90 * DAY  # how long a yes is remembered
    # RFC 9126 §2.2: from pushing the request to a signed-in browser that opens it.
    pushed_ms: int = 90 * SECOND
    # Parallel processes share one stored refresh token and use it at the same moment; a thief comes later.
    replay_window_ms: int = 60 * SECOND

    def __post_init__(self) -> None:
        # Below this, common clients refresh before every single request.
        if self.access_ms < 10 * MINUTE:
            raise ValueError("access tokens live at least 10 minutes")
        if not 0 <= self.replay_window_ms <= 10 * MINUTE:
            raise ValueError("the replay window is 0 to 10 minutes")


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistrationPolicy:
    """Clients that nobody entered by hand: RFC 7591, and documents at the client's own address."""

    mode: Literal["open", "token", "off"] = "open"
    # SHA-256 of the initial access token, where mode is "token".
    token_hash: str = field(default="", repr=False)
    per_network: int = 20  # registrations, and changes to them
    per_network_at_home: int = 300  # by the programs of this machine, which share an address
    per_network_ms: int = 15 * MINUTE
    per_neighbourhood: int = 100  # in the same time: one IPv6 prefix is thousands of networks
    everybody: int = 1_000  # by all together, in the same time
    # Registered programs that nobody ever let in: the oldest makes room, so that a flood keeps nobody else from registering.
    unused: int = 5_000
    # Clients register anew with each login; what nobody ever let in is litter.
    unused_ms: int = 7 * DAY
    idle_ms: int = 90 * DAY
    documents: Literal["on", "pinned", "off"] = "on"
    document_hosts: frozenset[str] = frozenset()  # empty: any
    # Fetches that nobody who is signed in has asked for.
    fetches_per_network: int = 10
    fetches_per_network_ms: int = 10 * MINUTE
    fetches: int = 300  # by all networks together, in the same time: each leaves rows behind


class KeyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule by which the signing key is replaced."""

    signs_ms: int = 90 * DAY
    published_before_ms: int = 1 * DAY  # clients and resource servers hold the old JWKS for a while
    margin_ms: int = 60 * MINUTE  # an old key stays published for the longest token's life and this

    def __post_init__(self) -> None:
        if self.signs_ms < 2 * self.published_before_ms:
            raise ValueError("a signing key is used for at least twice as long as it is announced")


class FormLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The rate limits of the OAuth endpoints. Well-known documents are never limited: clients give up on a 429.

    None where a limit may be absent: requests that leave no row are not counted.
    """

    # Counted per client and network: a public client id is shared by everybody.
    per_minute_per_client: int | None = 120
    per_minute_per_network: int | None = 600
    # Each refusal leaves an audit row that is kept for a month: a stranger must not be able to fill the disk with them.
    refused_per_minute_per_network: int = 30
    # Pushed authorization requests of clients behind which anybody may be; each leaves some KiB, and an audit row.
    pushed_per_minute_per_network: int = 30
    # Tries at a passphrase from browsers that were never signed in here, of all networks together: each costs a hash. Names of
    # accounts are treated like any other, or it would tell which there are.
    guesses_per_minute: int = 600
    pushed: int = 300  # of theirs that wait to be opened or decided, of all networks together
    # A neighbourhood (/24, /48) holds at most one place for each so many that are free: whoever has many addresses leaves places to
    # those who come after. None: there is one neighbourhood.
    pushed_share: int | None = 8


# All programs of this machine share an address, and whoever runs them has other ways to keep it busy; but not to fill a disk.
AT_HOME = FormLimits(
    per_minute_per_client=None,
    per_minute_per_network=None,
    refused_per_minute_per_network=600,
    pushed_per_minute_per_network=300,
    pushed_share=None,
)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    device: DevicePolicy = msgspec.field(default_factory=DevicePolicy)
    tokens: TokenPolicy = msgspec.field(default_factory=TokenPolicy)
    limits: FormLimits = msgspec.field(default_factory=FormLimits)
    at_home: FormLimits = AT_HOME
    registration: RegistrationPolicy = msgspec.field(default_factory=RegistrationPolicy)
    keys: KeyPolicy = msgspec.field(default_factory=KeyPolicy)
    assertions: bool = False  # whether any provider's word to programs counts (grants/identity_assertions.py)
