"""The guard of one upstream: of what it offers, only what was accepted goes on. Kept in memory as the store has it.

It decides each time the lists are read and each time somebody accepts or forgets, without waiting. Writing is upstream_registry.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any, Final, Literal, TypeAlias

import msgspec

from auth.values.identity_model import Millis
from server.agents.base.backend import Trouble
from server.agents.mcp.offer_guard import UpstreamLists
from server.agents.mcp.trust.definitions import (
    INSTRUCTIONS,
    Definition,
    DefinitionKey,
    DefinitionKind,
    Verdict,
    define,
    judge,
)
from server.agents.mcp.trust.pin_rows import BY_SETTINGS, Pin, PinnedUpstream, UpstreamKey
from server.lib.log.logger import Logger
from server.lib.log.visible_text import clean
from server.lib.shortened import short_name
from server.mcp.messages import Tool, ToolExecution

TrustMode: TypeAlias = Literal["pinned", "first-use", "always"]

NOTHING: Final = Verdict(allowed=frozenset(), new=(), changed=(), gone=())
NAMED: Final = 5  # tools in one line of a log


class PinGuard:
    """An `OfferGuard`. `first`: hands over what it offered when it was met, to be written."""

    def __init__(
        self,
        upstream: UpstreamKey,
        mode: TrustMode,
        pinned: PinnedUpstream,
        *,
        first: Callable[[Sequence[Definition]], None],
        clock: Callable[[], Millis],
        log: Logger,
    ) -> None:
        self.upstream = upstream
        self.mode: Final = mode
        self.source: Final = pinned.source
        self._pins = dict(pinned.pins)
        self._met = pinned.met
        self._first = first
        self._clock = clock
        self._log = log
        self._again: Callable[[], None] = lambda: None
        self._offered: dict[DefinitionKey, Definition] = {}
        self._repeated: list[Definition] = []  # of a name that was offered already
        self._since: dict[DefinitionKey, Millis] = {}
        self.verdict = NOTHING
        self.seen_at: Millis | None = None  # when its lists were last read

    # ── what is offered ──────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, again: Callable[[], None]) -> None:
        """`again` is called when another judgement of the same lists would differ."""
        self._again = again

    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        if self.mode == "always":
            self.seen_at = self._clock()
            return offered
        definitions, unreadable = _definitions(offered)
        if unreadable:
            self._log.warning("upstream.unreadable", upstream=str(self.upstream), names=unreadable[:NAMED])
        if self.mode == "first-use" and not self._met:
            self._met = True
            now = self._clock()
            self._pins = {each.key: _pin(each, BY_SETTINGS, now) for each in definitions}
            self._first(definitions)
        self._judge(definitions)
        return _those(offered, self.verdict.allowed)

    def withheld(self, is_meant: Callable[[str], bool]) -> str | None:
        meant = (key for key in self._since if key.kind == "tool" and is_meant(key.name))
        return next(map(self._words, meant), None)

    def _words(self, key: DefinitionKey) -> str:
        what = (
            "is not what the owner of this server has accepted"
            if key in self._pins
            else "is new to its owner"
        )
        return (
            f"the tool {short_name(key.name)} {what}, and cannot be used until they have looked at it: "
            f"`ostiary upstream accept {quote(str(self.upstream))}`"
        )

    # ── what was accepted ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def pins(self) -> Mapping[DefinitionKey, Pin]:
        return self._pins

    def pinned(self) -> PinnedUpstream:
        """All that is known of it, for whoever comes in its place: not all of it need be written yet."""
        return PinnedUpstream(source=self.source, met=self._met, pins=dict(self._pins))

    @property
    def offered(self) -> Mapping[DefinitionKey, Definition]:
        """As it was last said."""
        return self._offered

    def since(self, key: DefinitionKey) -> Millis | None:
        """From when on it has been withheld; None: it is not."""
        return self._since.get(key)

    def accepted(self, definitions: Sequence[Definition], by: str, now: Millis) -> None:
        """They are written."""
        self._met = True
        self._pins |= {each.key: _pin(each, by, now) for each in definitions}
        self._judge_again()

    def forgotten(self, keys: Sequence[DefinitionKey] | None) -> None:
        """They are written no more; None: all of them."""
        self._met = True
        for key in list(self._pins) if keys is None else keys:
            self._pins.pop(key, None)
        self._judge_again()

    def take(self, pinned: PinnedUpstream) -> None:
        """What is written now, whoever wrote it."""
        if pinned.met and (not self._met or dict(pinned.pins) != self._pins):
            self._met, self._pins = True, dict(pinned.pins)
            self._judge_again()

    def waiting(self) -> str:
        """What waits to be accepted, in words; empty where nothing does."""
        count = len(self._since)
        if not count:
            return ""
        first = min(self._since)
        named = f"the {first.kind} {clean(short_name(first.name))}"
        others = f" and {count - 1} more wait" if count > 1 else " waits"
        return f"{named}{others} to be looked at"

    def trouble(self) -> Trouble | None:
        waiting = self.waiting()
        if not waiting:
            return None
        words = f"{waiting}: ostiary upstream accept {quote(str(self.upstream))}"
        return Trouble(words, min(self._since.values()), kind="waits")

    def _judge_again(self) -> None:
        if self.mode != "always" and self.seen_at is not None:
            self._judge([*self._offered.values(), *self._repeated])
            self._again()

    def _judge(self, definitions: Sequence[Definition]) -> None:
        now, before = self._clock(), set(self._since)
        self.verdict = judge({key: pin.digest for key, pin in self._pins.items()}, definitions)
        self._offered = {}
        self._repeated = []
        for each in definitions:
            if each.key in self._offered:
                self._repeated.append(each)
            else:
                self._offered[each.key] = each
        self.seen_at = now
        self._since = {each.key: self._since.get(each.key, now) for each in self.verdict.blocked}
        if fresh := sorted(self._since.keys() - before):
            self._log.warning(
                "upstream.withheld",
                upstream=str(self.upstream),
                count=len(fresh),
                names=[f"{key.kind} {short_name(key.name)}" for key in fresh[:NAMED]],
                changed=sum(each.key in set(fresh) for each in self.verdict.changed),
            )


def _definitions(offered: UpstreamLists) -> tuple[list[Definition], list[str]]:
    """And the names of those that cannot even be compared."""
    found: list[Definition] = []
    unreadable: list[str] = []
    for kind, name, said in _said(offered):
        try:
            found.append(define(kind, name, said))
        except ValueError:
            unreadable.append(f"{kind} {short_name(name)}")
    return found, unreadable


def _said(offered: UpstreamLists) -> list[tuple[DefinitionKind, str, Any]]:
    return [
        *(("tool", tool.name, _with_tasks(tool, offered)) for tool in offered.tools),
        *(("prompt", prompt.name, prompt) for prompt in offered.prompts),
        *(("template", template.uri_template, template) for template in offered.resource_templates),
        *((INSTRUCTIONS.kind, INSTRUCTIONS.name, text) for text in (offered.instructions,) if text),
    ]


def _with_tasks(tool: Tool, offered: UpstreamLists) -> Tool:
    """Return the tool with whether its calls have to be tasks there, which the list that is offered on does not say. Whether they may be is
    in that list."""
    if offered.tasks.get(tool.name) != "required":
        return tool
    return msgspec.structs.replace(tool, execution=ToolExecution(task_support="required"))


def _those(offered: UpstreamLists, allowed: frozenset[DefinitionKey]) -> UpstreamLists:
    return msgspec.structs.replace(
        offered,
        tools=[each for each in offered.tools if DefinitionKey("tool", each.name) in allowed],
        prompts=[each for each in offered.prompts if DefinitionKey("prompt", each.name) in allowed],
        resource_templates=[
            each
            for each in offered.resource_templates
            if DefinitionKey("template", each.uri_template) in allowed
        ],
        instructions=offered.instructions if INSTRUCTIONS in allowed else "",
    )


def _pin(definition: Definition, by: str, now: Millis) -> Pin:
    return Pin(digest=definition.digest, text=definition.text, accepted_at=now, accepted_by=by)
