"""Calls that have to be confirmed: shown first, and then made once, as they were shown.

A preview has an id, which is all that there is of it: a random number, until when it is good, and two MACs under a key of ours. The first
says whose it is and the second of which call, so that an id that is nobody's can be told from one of other arguments. Nothing is kept of a
preview but which call has used it: a conditional write in the store burns it before the tool runs, and unburns it where the tool says that
it failed. After a crash, or where nobody knows how the call ended, it stays burned, for every call but that one.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from auth.jose.base64url import pack, unpack
from server.calls.policy.confirmation_questions import fingerprint, shown
from server.mcp.messages import Tool
from server.mcp.terms import BadTerms
from server.settings.rule_settings import ConfirmConfig
from server.store.jobs import Store, StoreDb

# By a call for the first time, by the same call again, or by another one before.
Burn: TypeAlias = Literal["fresh", "again", "used"]
Unconfirmed: TypeAlias = Literal[
    "tool_disabled",
    "confirmation_required",
    "preview_required",
    "preview_unknown",
    "preview_stale",
    "preview_mismatch",
]

_NONCE: Final = 12
_EXPIRY: Final = 6  # of milliseconds
_OF_WHOM: Final = 12
_OF_WHAT: Final = 16
_MARK: Final = 8
_BYTES: Final = _NONCE + _EXPIRY + _OF_WHOM + _OF_WHAT
LONGEST_ID: Final = -(-_BYTES * 4 // 3)
# Beyond what it is good for: a clock that is set back must not make a burned one good again.
_KEPT_MS: Final = 24 * 3_600_000

# The amount says by which call.
_BURN: Final = (
    "INSERT INTO meters (subject, period, amount, expires_at) VALUES (?, 'once', ?, ?)"
    " ON CONFLICT (subject, period) DO UPDATE SET amount = excluded.amount WHERE meters.amount = 0"
)
_BURNED_BY: Final = "SELECT amount FROM meters WHERE subject = ? AND period = 'once'"
_UNBURN: Final = "UPDATE meters SET amount = 0 WHERE subject = ? AND period = 'once' AND amount = ?"

# What is added to a tool's arguments, and by which names where it has such already.
_CONFIRM: Final = ("confirm", "ostiary_confirm")
_PREVIEW: Final = ("preview_id", "ostiary_preview_id")


class PreviewId(msgspec.Struct, frozen=True):
    """One that is good, for this call."""

    nonce: bytes
    expires_at: int

    @property
    def subject(self) -> str:
        return f"preview:{self.nonce.hex()}"


class Previews:
    """Ids of previews at one server."""

    def __init__(
        self,
        store: Store,
        server: str,
        *,
        key: bytes,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._server = server
        self._key = key
        self._clock = clock
        self._entropy = entropy

    def issue(self, caller: str, tool: str, arguments: Mapping[str, Any], minutes: int) -> str:
        expires = self._clock() + minutes * 60_000
        head = self._entropy(_NONCE) + expires.to_bytes(_EXPIRY)
        raw = head + self._of_whom(head, caller) + self._of_what(head, caller, tool, arguments)
        return pack(raw)

    def read(
        self, text: str, caller: str, tool: str, arguments: Mapping[str, Any]
    ) -> PreviewId | Unconfirmed:
        raw = _bytes(text)
        if raw is None:
            return "preview_unknown"
        head, rest = raw[: _NONCE + _EXPIRY], raw[_NONCE + _EXPIRY :]
        if not hmac.compare_digest(rest[:_OF_WHOM], self._of_whom(head, caller)):
            return "preview_unknown"
        found = PreviewId(head[:_NONCE], int.from_bytes(head[_NONCE:]))
        if self._clock() >= found.expires_at:
            return "preview_stale"
        if not hmac.compare_digest(rest[_OF_WHOM:], self._of_what(head, caller, tool, arguments)):
            return "preview_mismatch"
        return found

    async def burn(self, preview: PreviewId, *by: str) -> Burn:
        """`by`: what that call is known by. Raises `StoreUnavailable`."""
        return await self._store.write(partial(_burn, preview=preview, mark=self._mark(by)))

    async def unburn(self, preview: PreviewId, *by: str) -> None:
        """Raises `StoreUnavailable`."""
        await self._store.write(partial(_unburn, preview=preview, mark=self._mark(by)))

    def _mark(self, by: Sequence[str]) -> int:
        """Neither 0 nor 1, which no call is known by."""
        return (int.from_bytes(self._mac(b"by", b"", *by)[:_MARK]) >> 1) | 2

    def _of_whom(self, head: bytes, caller: str) -> bytes:
        return self._mac(b"whom", head, caller)[:_OF_WHOM]

    def _of_what(self, head: bytes, caller: str, tool: str, arguments: Mapping[str, Any]) -> bytes:
        return self._mac(b"what", head, caller, fingerprint(tool, arguments))[:_OF_WHAT]

    def _mac(self, use: bytes, head: bytes, *of: str) -> bytes:
        text = msgspec.json.encode([self._server, *of])
        return hmac.digest(self._key, use + head + text, "sha256")


def _burn(db: StoreDb, preview: PreviewId, mark: int) -> Burn:
    if db.execute(_BURN, preview.subject, mark, preview.expires_at + _KEPT_MS) == 1:
        return "fresh"
    found = db.fetch_one(_BURNED_BY, preview.subject)
    return "again" if found is not None and found["amount"] == mark else "used"


def _unburn(db: StoreDb, preview: PreviewId, mark: int) -> None:
    db.execute(_UNBURN, preview.subject, mark)


def _bytes(text: str) -> bytes | None:
    if not 0 < len(text) <= LONGEST_ID:
        return None
    try:
        raw = unpack(text)
    except ValueError:
        return None
    return raw if len(raw) == _BYTES else None


class GivenConfirmation(msgspec.Struct, frozen=True):
    """What a call says of its confirmation, and its arguments without that."""

    arguments: dict[str, Any]
    confirms: bool
    preview_id: str


class ConfirmedTool:
    """A tool whose calls are confirmed. Raises `BadTerms` where its arguments leave no names for that."""

    def __init__(self, tool: Tool, config: ConfirmConfig) -> None:
        self.config: Final = config
        own: Any = tool.input_schema.get("properties")
        names: Mapping[str, Any] = cast("Mapping[str, Any]", own) if isinstance(own, Mapping) else {}
        self.confirm: Final = _free(_CONFIRM, names, tool.name)
        self.preview_id: Final = _free(_PREVIEW, names, tool.name)
        self.title: Final = tool.title or tool.name

    def shown(self, tool: Tool) -> Tool:
        """With what a caller has to say besides."""
        schema = tool.input_schema
        first = (
            f"`{self.config.preview}` with the same arguments"
            if self.config.preview
            else "this tool without it"
        )
        properties: dict[str, Any] = {
            **cast("Mapping[str, Any]", schema.get("properties") or {}),
            self.confirm: {
                "type": "boolean",
                "description": f"true makes the call. First call {first}, and show the person what will be done.",
            },
            self.preview_id: {
                "type": "string",
                "description": "The id that came with what was shown.",
            },
        }
        return msgspec.structs.replace(tool, input_schema={**schema, "properties": properties})

    def taken(self, arguments: Mapping[str, Any]) -> GivenConfirmation:
        rest = {
            name: value for name, value in arguments.items() if name not in (self.confirm, self.preview_id)
        }
        preview_id = arguments.get(self.preview_id)
        return GivenConfirmation(
            rest, arguments.get(self.confirm) is True, preview_id if isinstance(preview_id, str) else ""
        )

    def how_to_go_on(self, reason: Unconfirmed) -> str:
        anew = (
            f"call {self.config.preview} with exactly the same arguments"
            if self.config.preview
            else f"call {self.title} again without {self.confirm} and {self.preview_id}"
        )
        then = f"then this tool with them, {self.confirm} = true and the {self.preview_id} that came with it"
        first = f"To go on, {anew}, show the person what will be done, {then}."
        return {
            "tool_disabled": "No key or machine may confirm it: a person has to make this call.",
            "confirmation_required": (
                f"To make it, show the person what will be done, and call again with the same arguments, {self.confirm} = true"
                f" and this {self.preview_id}."
            ),
            "preview_required": f"It has to be shown before it is made. {first}",
            "preview_unknown": f"This {self.preview_id} is none of yours. {first}",
            "preview_stale": f"This {self.preview_id} has been used, or is too old. {first}",
            "preview_mismatch": f"What was shown was another call than this one. {first}",
        }[reason]

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return f"This is what will be done: {self.title}, with\n{shown(arguments)}"


def _free(names: tuple[str, ...], taken: Mapping[str, Any], tool: str) -> str:
    for name in names:
        if name not in taken:
            return name
    raise BadTerms(f"the tool {tool} has arguments named {' and '.join(names)}: it cannot be confirmed")
