"""The extension `payment-identifier`: a key with which a client names one purchase, so that asking twice buys once.

What a repeated key leads to is the till's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

PAYMENT_IDENTIFIER: Final = "payment-identifier"
SHORTEST: Final = 16
LONGEST: Final = 128

_IDENTIFIER: Final = re.compile(rf"[A-Za-z0-9_-]{{{SHORTEST},{LONGEST}}}")


class BadIdentifier(ValueError):
    """The extension is there, and holds no identifier of the form that it must have."""


def is_identifier(text: str) -> bool:
    return _IDENTIFIER.fullmatch(text) is not None


def declaration(*, required: bool = False) -> dict[str, Any]:
    """For `extensions` of a challenge."""
    return {
        "info": {"required": required},
        "schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "required": {"type": "boolean"},
                "id": {
                    "type": "string",
                    "minLength": SHORTEST,
                    "maxLength": LONGEST,
                    "pattern": "^[a-zA-Z0-9_-]+$",
                },
            },
            "required": ["required"],
        },
    }


def with_identifier(extensions: Mapping[str, Any], identifier: str) -> dict[str, Any]:
    """The extensions of a challenge as a payer sends them back: with its key, where the server takes one."""
    found = dict(extensions)
    if isinstance(declared := found.get(PAYMENT_IDENTIFIER), Mapping):
        declared = cast("Mapping[str, Any]", declared)
        info = declared.get("info")
        known: Mapping[str, Any] = cast("Mapping[str, Any]", info) if isinstance(info, Mapping) else {}
        found[PAYMENT_IDENTIFIER] = {**declared, "info": {**known, "id": identifier}}
    return found


def read_identifier(extensions: Mapping[str, Any]) -> str | None:
    """What the payer calls this purchase. None where the extension only came back as it was. Raises `BadIdentifier`."""
    if (declared := extensions.get(PAYMENT_IDENTIFIER)) is None:
        return None
    info: object = cast("Mapping[str, Any]", declared).get("info") if isinstance(declared, Mapping) else None
    if not isinstance(info, Mapping):
        raise BadIdentifier(f'the extension "{PAYMENT_IDENTIFIER}" has no "info"')
    identifier = cast("Mapping[str, Any]", info).get("id")
    if identifier is None:
        return None
    if not isinstance(identifier, str) or not is_identifier(identifier):
        raise BadIdentifier(
            f'the "id" of the extension "{PAYMENT_IDENTIFIER}" must have {SHORTEST} to {LONGEST} letters, digits, "-" or "_"'
        )
    return identifier
