"""What a person is asked before a call is made, and what of their answer counts as a yes.

The question shows what would be done, and is known by it: a yes is for this tool and these arguments. What of the arguments is too long to
be shown is said to be, and is in the fingerprint all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from server.lib.log.visible_text import escaped

SHOWN: Final = 4000  # characters of arguments that a person reads before they answer
FINGERPRINT_CHARACTERS: Final = 32  # of a digest in hex, where a whole one would be long
_LONGEST: Final = 500  # of one text in them
_DEEPEST: Final = 6
_MOST: Final = 50  # of a list or an object

# One field, so that clients which show no form for an empty one show this; leaving it as it is means no.
FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "agree": {
            "type": "boolean",
            "title": "Let this call be made",
            "description": "Only with exactly these arguments",
            "default": False,
        }
    },
    "required": ["agree"],
}


def fingerprint(tool: str, arguments: Mapping[str, Any]) -> str:
    """The same for the same call. What is no JSON has none: raises `ValueError`, `TypeError` or `RecursionError`."""
    text = msgspec.json.encode([tool, arguments], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def consent_key(tool: str, arguments: Mapping[str, Any]) -> str:
    return f"ostiary-policy-{fingerprint(tool, arguments)[:FINGERPRINT_CHARACTERS]}"


def question_of(tool: str, arguments: Mapping[str, Any], reason: str) -> Mapping[str, Any]:
    """Parameters of `elicitation/create`."""
    message = f'May "{tool}" be called?\n\n{shown(arguments)}'
    if reason:
        message += f"\n\nYou are asked because {reason}."
    return {"message": message, "requestedSchema": FORM}


def consents(answer: Mapping[str, Any] | None) -> bool | None:
    """Read a yes or a no; None where nobody said either. A question that is closed is answered by nobody: programs without anybody
    in front of them do that. Whoever accepts and leaves the box empty has said no."""
    action = None if answer is None else answer.get("action")
    content = None if answer is None else answer.get("content")
    if action == "accept" and isinstance(content, Mapping):
        return cast("Mapping[str, Any]", content).get("agree") is True
    return False if action == "decline" else None


def shown(arguments: Mapping[str, Any]) -> str:
    """For a person's eyes: JSON, no longer than somebody reads."""
    if not arguments:
        return "without arguments"
    text = msgspec.json.format(msgspec.json.encode(_short(arguments, 0)), indent=2).decode()
    text = escaped(text, keep="\n")  # nothing in them reorders what is read
    return text if len(text) <= SHOWN else text[:SHOWN] + "\n… (there is more)"


def _short(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}… ({len(value)} characters)"
    if depth >= _DEEPEST and isinstance(value, Mapping | list):
        return "…"
    if isinstance(value, Mapping):
        entries = list(cast("Mapping[str, Any]", value).items())
        short = {name[:_LONGEST]: _short(each, depth + 1) for name, each in entries[:_MOST]}
        if len(entries) > _MOST:
            short["…"] = f"{len(entries) - _MOST} more"
        return short
    if isinstance(value, list):
        items = cast("list[Any]", value)
        more = [f"… {len(items) - _MOST} more"] if len(items) > _MOST else []
        return [*(_short(each, depth + 1) for each in items[:_MOST]), *more]
    return value
