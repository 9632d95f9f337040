"""What a payment must look like, and how it is asked for, in both versions of the protocol (x402 v2 §5.1, v1 §5).

These are the server's own: whatever a client says it accepts is compared with them (payment_payload.py) and never sent on. How they travel
over MCP and over HTTP is in_band.py's and payment_headers.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from server.lib.evm.payment_networks import find_network
from server.lib.money.amounts import BadAmount, parse_atomic

EXACT: Final = "exact"
V2: Final = 2
V1: Final = 1
# A well-known facilitator refuses payments for what is described at greater length.
DESCRIPTION_CHARACTERS: Final = 500
SERVICE_NAME_CHARACTERS: Final = 32
TAGS: Final = 5

_TEXT_CHARACTERS: Final = 256  # of an id, an address; far more than any has
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class BadRequirements(ValueError):
    """What was read are no requirements; says why."""


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """One way to pay: an entry of `accepts`."""

    scheme: str
    network: str  # CAIP-2
    amount: str  # atomic units, decimal
    asset: str
    pay_to: str
    max_timeout_seconds: int
    extra: Mapping[str, Any] = msgspec.field(default_factory=lambda: _EMPTY)

    def as_json(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "network": self.network,
            "amount": self.amount,
            "asset": self.asset,
            "payTo": self.pay_to,
            "maxTimeoutSeconds": self.max_timeout_seconds,
            "extra": dict(self.extra),
        }

    def as_v1_json(self, resource: PaidResource) -> dict[str, Any] | None:
        """The same in version 1, or None where that has no name for the network."""
        network = find_network(self.network)
        if network is None or not network.v1_name:
            return None
        # `outputSchema` is left out: the reference client of version 1 fails on a null there.
        return {
            "scheme": self.scheme,
            "network": network.v1_name,
            "maxAmountRequired": self.amount,
            "resource": resource.url,
            "description": resource.short_description,
            "mimeType": resource.mime_type,
            "payTo": self.pay_to,
            "maxTimeoutSeconds": self.max_timeout_seconds,
            "asset": self.asset,
            "extra": dict(self.extra),
        }


class PaidResource(msgspec.Struct, frozen=True, kw_only=True):
    """What is paid for."""

    url: str
    description: str = ""
    mime_type: str = "application/json"
    service_name: str = ""
    tags: tuple[str, ...] = ()
    icon_url: str = ""

    @property
    def short_description(self) -> str:
        text = self.description
        return text if len(text) <= DESCRIPTION_CHARACTERS else text[: DESCRIPTION_CHARACTERS - 1] + "…"

    def as_json(self) -> dict[str, Any]:
        """Without whatever is empty, and without a service name or tags that a directory would turn the whole entry away for."""
        found: dict[str, Any] = {"url": self.url}
        if self.description:
            found["description"] = self.short_description
        if self.mime_type:
            found["mimeType"] = self.mime_type
        if self.service_name and _is_label(self.service_name):
            found["serviceName"] = self.service_name
        if tags := [tag for tag in self.tags if _is_label(tag)][:TAGS]:
            found["tags"] = tags
        if self.icon_url:
            found["iconUrl"] = self.icon_url
        return found


def payment_required(
    requirements: Sequence[Requirements],
    resource: PaidResource,
    error: str,
    extensions: Mapping[str, Any] = _EMPTY,
) -> dict[str, Any]:
    """The challenge of version 2. The order is kept: clients take the first entry that they can pay."""
    found: dict[str, Any] = {
        "x402Version": V2,
        "error": error,
        "resource": resource.as_json(),
        "accepts": [each.as_json() for each in requirements],
    }
    if extensions:
        found["extensions"] = dict(extensions)
    return found


def payment_required_v1(
    requirements: Sequence[Requirements], resource: PaidResource, error: str
) -> dict[str, Any] | None:
    """The challenge of version 1, or None where nothing of it can be paid in that version.

    A payment of version 1 does not say which token it moves: of each network there is the first entry alone."""
    accepts: dict[str, dict[str, Any]] = {}
    for each in requirements:
        entry = each.as_v1_json(resource)
        if entry is not None:
            accepts.setdefault(each.network, entry)
    if not accepts:
        return None
    return {"x402Version": V1, "error": error, "accepts": list(accepts.values())}


def read_requirements(value: object) -> Requirements:
    """An entry of `accepts`, of either version, as somebody else wrote it. Raises `BadRequirements`.

    The network is CAIP-2 afterwards, also where version 1 has another name for it."""
    if not isinstance(value, Mapping):
        raise BadRequirements("are not an object")
    entry = cast("Mapping[str, object]", value)
    network = _text(entry, "network")
    if known := find_network(network):
        network = known.caip2
    amount = _text(entry, "amount" if "amount" in entry else "maxAmountRequired")
    try:
        parse_atomic(amount)
    except BadAmount as problem:
        raise BadRequirements(f'have an "amount" that {problem}') from None
    seconds = entry.get("maxTimeoutSeconds")
    if type(seconds) is not int or not 0 <= seconds <= 2**31:
        raise BadRequirements('have no whole number of seconds in "maxTimeoutSeconds"')
    extra = entry.get("extra")
    if extra is not None and not isinstance(extra, Mapping):
        raise BadRequirements('have an "extra" that is no object')
    return Requirements(
        scheme=_text(entry, "scheme"),
        network=network,
        amount=amount,
        asset=_text(entry, "asset"),
        pay_to=_text(entry, "payTo"),
        max_timeout_seconds=seconds,
        extra=dict(cast("Mapping[str, Any]", extra or {})),
    )


def _text(entry: Mapping[str, object], key: str) -> str:
    found = entry.get(key)
    if not isinstance(found, str) or not 0 < len(found) <= _TEXT_CHARACTERS:
        raise BadRequirements(f'have no text in "{key}"')
    return found


def _is_label(text: str) -> bool:
    return 0 < len(text) <= SERVICE_NAME_CHARACTERS and text.isascii() and text.isprintable()
