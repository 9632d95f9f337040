"""One facilitator over HTTP: what it is sent, by when it must have answered, and how much it may say (x402 v2 §7).

The meaning of its answers is settlements.py's; facilitators.py chooses the facilitator. Redirects are not followed: its address is
the configuration's, and payments go nowhere else. Nothing is sent twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import msgspec
import trio

from server.lib.evm.payment_networks import find_network
from server.lib.http_client.failures import DeadlinePassed, FetchFailed, NotConnected
from server.lib.http_client.fetch import Fetcher, header_line
from server.payments.x402.envelopes import UnreadableEnvelope, open_envelope
from server.payments.x402.payment_payload import Payment
from server.payments.x402.requirements import V1, V2, PaidResource, Requirements
from server.payments.x402.settlements import (
    ANSWER_BYTES,
    NoAnswer,
    Rejected,
    SettleOutcome,
    Unknown,
    Verified,
    read_settled,
    read_verified,
)

if TYPE_CHECKING:
    from server.payments.x402.request_tokens import RequestTokens

SUPPORTED_SECONDS: Final = 10.0
SUPPORTED_BYTES: Final = 256 * 1024
CONNECTIONS: Final = 64
MOST_KINDS: Final = 512
MOST_SIGNERS: Final = 1000
_ADDRESS: Final = re.compile("0x[0-9a-fA-F]{40}")

# Version 1 wants to know what is paid for, and facilitators want that to be a URL.
_SOMETHING: Final = PaidResource(url="mcp://tool", description="", mime_type="application/json")


class FacilitatorAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The address of one facilitator, and all that is needed to call it. `headers` are values, no references: whoever reads the settings has looked those up."""

    url: str
    networks: tuple[str, ...] = ()  # CAIP-2; empty: whatever it says that it supports
    headers: tuple[tuple[str, str], ...] = ()
    verify_seconds: float = 15.0
    settle_seconds: float = 60.0
    ca_file: Path | None = None
    tokens: RequestTokens | None = None  # each request brings one of its own

    @property
    def shown_url(self) -> str:
        """Without its query, in which there may be a key."""
        return self.url.partition("?")[0]

    def __repr__(self) -> str:
        return (
            f"FacilitatorAccess(url={self.shown_url!r}, headers={sorted(name for name, _ in self.headers)!r})"
        )


class SupportedKind(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    scheme: str
    network: str  # CAIP-2, or a pattern like `eip155:*`

    def covers(self, version: int, scheme: str, network: str) -> bool:
        if (version, scheme) != (self.version, self.scheme):
            return False
        return network == self.network or (
            self.network.endswith(":*") and network.startswith(self.network[:-1])
        )


class _Head(msgspec.Struct, frozen=True):
    """The head of a request to one endpoint: the same each time, but for a token."""

    fixed: bytes
    method: str
    host: str
    path: str
    tokens: RequestTokens | None

    def lines(self) -> bytes:
        if self.tokens is None:
            return self.fixed
        return self.fixed + header_line(
            "Authorization", f"Bearer {self.tokens.token(self.method, self.host, self.path)}"
        )


class NotSent(Exception):
    """Not a byte reached the facilitator. The text continues a sentence about it."""


class FacilitatorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A facilitator's own word: what it supports, and the addresses from which it sends transactions, in small letters."""

    kinds: tuple[SupportedKind, ...] = ()
    signers: frozenset[str] = frozenset()


class FacilitatorClient:
    def __init__(self, access: FacilitatorAccess) -> None:
        """Prepare the requests. Raises `ValueError` for an address, a header or a CA file that cannot be used."""
        self.access: Final = access
        self._fetcher = Fetcher(access.url, connections=CONNECTIONS, ca_file=access.ca_file)
        parts = urlsplit(access.url)
        # No connection is kept: one that the other side is just closing would lose the answer to a settlement, and with it the knowledge
        # of whether money moved. What a new one costs is little beside the time that a network takes.
        headers = (("Accept", "application/json"), ("Connection", "close"), *access.headers)

        def head(method: str, endpoint: str, *more: tuple[str, str]) -> _Head:
            path = f"{parts.path.rstrip('/')}/{endpoint}"
            target = path + (f"?{parts.query}" if parts.query else "")
            lines = self._fetcher.prepare(method, (*more, *headers), target=target)
            return _Head(lines, method, parts.netloc, path, access.tokens)

        self._verify = head("POST", "verify", ("Content-Type", "application/json"))
        self._settle = head("POST", "settle", ("Content-Type", "application/json"))
        self._supported = head("GET", "supported")

    def __repr__(self) -> str:
        return f"<FacilitatorClient of {self.access.shown_url}>"

    async def verify(
        self, payment: Payment, requirements: Requirements, resource: PaidResource | None
    ) -> Verified | Rejected:
        """Ask whether the payment is good. Raises `NoAnswer`."""
        document = _document(payment, requirements, resource)
        deadline = trio.current_time() + self.access.verify_seconds
        status, body = await self._ask(self._verify, document, deadline, ANSWER_BYTES)
        return read_verified(status, body, payment, self.access.url)

    async def settle(
        self, payment: Payment, requirements: Requirements, resource: PaidResource | None, *, repeated: bool
    ) -> SettleOutcome:
        """Ask to move the money. Raises `NotSent`. Cancelled, it leaves open what happened: whoever calls it shields it."""
        document = _document(payment, requirements, resource)
        try:
            status, body = await self._fetcher.exchange(
                self._settle.lines(),
                document,
                deadline=trio.current_time() + self.access.settle_seconds,
                limit=ANSWER_BYTES,
                beginning=ANSWER_BYTES,
            )
        except NotConnected as problem:
            raise NotSent(str(problem)) from problem
        except FetchFailed as problem:
            return Unknown(problem=str(problem))
        except DeadlinePassed:
            return Unknown(problem=f"did not answer within {self.access.settle_seconds:g} s")
        return read_settled(status, body, payment, requirements.amount, repeated=repeated)

    async def supported(self) -> FacilitatorFacts:
        """Ask for all kinds of payment. Raises `NoAnswer`, also where it supports nothing: some say so while they start."""
        deadline = trio.current_time() + SUPPORTED_SECONDS
        status, body = await self._ask(self._supported, b"", deadline, SUPPORTED_BYTES)
        if status != 200:
            raise NoAnswer(f"answered with status {status}")
        found = _facts(body)
        if not found.kinds:
            raise NoAnswer("names no kind of payment that it supports")
        return found

    async def aclose(self) -> None:
        await self._fetcher.aclose()

    async def _ask(self, head: _Head, document: bytes, deadline: float, limit: int) -> tuple[int, bytes]:
        """Ask a question that changes nothing. Raises `NoAnswer`."""
        try:
            return await self._fetcher.exchange(
                head.lines(), document, deadline=deadline, limit=limit, beginning=ANSWER_BYTES
            )
        except FetchFailed as problem:
            raise NoAnswer(str(problem)) from problem
        except DeadlinePassed:
            raise NoAnswer("does not answer in time") from None


def _document(payment: Payment, requirements: Requirements, resource: PaidResource | None) -> bytes:
    """Encode both halves in the payment's version. The requirements are ours in both: a client's copy is sent nowhere."""
    payload: dict[str, Any] = dict(payment.forward)
    if payment.version == V1:
        wanted = requirements.as_v1_json(resource or _SOMETHING)
    else:
        wanted = requirements.as_json()
        payload["accepted"] = wanted
    return msgspec.json.encode(
        {"x402Version": payment.version, "paymentPayload": payload, "paymentRequirements": wanted}
    )


def _facts(body: bytes) -> FacilitatorFacts:
    try:
        answer = open_envelope(body.decode("utf-8"), limit=SUPPORTED_BYTES)
    except (UnicodeDecodeError, UnreadableEnvelope):
        return FacilitatorFacts()
    kinds: object = answer.get("kinds")
    if not isinstance(kinds, list):
        return FacilitatorFacts()
    found = (_kind(each) for each in cast("list[object]", kinds)[:MOST_KINDS])
    return FacilitatorFacts(
        kinds=tuple(kind for kind in found if kind is not None), signers=_signers(answer.get("signers"))
    )


def _signers(value: object) -> frozenset[str]:
    """Read addresses by network. On which of them one sends does not matter: whoever has its key has it on all."""
    if not isinstance(value, Mapping):
        return frozenset()
    named: list[object] = []
    for each in cast("Mapping[str, object]", value).values():
        if isinstance(each, list):
            named += cast("list[object]", each)[: MOST_SIGNERS - len(named)]
    return frozenset(each.lower() for each in named if isinstance(each, str) and _ADDRESS.fullmatch(each))


def _kind(value: object) -> SupportedKind | None:
    if not isinstance(value, Mapping):
        return None
    entry = cast("Mapping[str, object]", value)
    version, scheme, network = entry.get("x402Version"), entry.get("scheme"), entry.get("network")
    if type(version) is not int or not isinstance(scheme, str) or not isinstance(network, str):
        return None
    if version == V1 and (known := find_network(network)) is not None:
        network = known.caip2
    return SupportedKind(version=version, scheme=scheme, network=network) if version in (V1, V2) else None
