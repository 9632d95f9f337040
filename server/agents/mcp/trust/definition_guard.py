"""The guard of one upstream: only what was accepted of its offer goes on. Pins are kept in memory as the store has them.

The guard decides each time the lists are read and each time somebody accepts or forgets, without waiting. Writing is upstream_registry.py's.

A resource that nobody has accepted is offered by its address alone, without the upstream's words: what there is changes every day, and nobody
would look at each. A tool whose page is withheld is offered without the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from auth.values.identity_model import Millis
from server.agents.base.backend import Trouble
from server.agents.mcp.offer_guard import ToolPage, UpstreamLists
from server.agents.mcp.trust.definitions import (
    INSTRUCTIONS,
    LATER_KINDS,
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
from server.mcp.app_pages import is_page, without_pages
from server.mcp.messages import Annotations, Resource, Tool, ToolExecution

TrustMode: TypeAlias = Literal["pinned", "first-use", "always"]

NOTHING: Final = Verdict(allowed=frozenset(), new=(), changed=(), gone=())
NAMED: Final = 5  # tools in one line of a log
_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}(?:; ?[a-z]+=[a-z0-9.+-]{1,40})?")


class PinGuard:
    """The `OfferGuard` of an upstream that is believed what was accepted."""

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
        """Keep the parts. `first` hands over what it offered when it was met, to be written."""
        self.upstream = upstream
        self.mode: Final = mode
        self.source: Final = pinned.source
        self._pins = dict(pinned.pins)
        self._met = pinned.met
        self._met_whole = pinned.met_whole
        self._pages: Mapping[str, str] = {}  # accepted ones that it offers, and the digests of their content
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
        """Remember `again`, which is called when another judgement of the same lists would differ."""
        self._again = again

    @property
    def pins_pages(self) -> bool:
        return self.mode != "always"

    def allowed(self, offered: UpstreamLists) -> UpstreamLists:
        if self.mode == "always":
            self.seen_at = self._clock()
            return offered
        definitions, unreadable = _definitions(offered)
        if unreadable:
            self._log.warning("upstream.unreadable", upstream=str(self.upstream), names=unreadable[:NAMED])
        if self.mode == "first-use" and not (self._met and self._met_whole):
            self._meet([each for each in definitions if each.is_whole])
        self._judge(definitions)
        allowed = self.verdict.allowed
        self._pages = {
            uri: page.digest for uri, page in offered.pages.items() if DefinitionKey("page", uri) in allowed
        }
        return _those(offered, allowed)

    def _meet(self, definitions: Sequence[Definition]) -> None:
        """Accept the first offer of an upstream. If it was met before resources and pages were pinned, these are accepted."""
        if self._met:
            definitions = [each for each in definitions if each.key.kind in LATER_KINDS]
        else:
            self._pins = {}
        self._met = self._met_whole = True
        now = self._clock()
        self._pins |= {each.key: _pin(each, BY_SETTINGS, now) for each in definitions}
        self._first(definitions)

    def resources_allowed(self, resources: Sequence[Resource]) -> Sequence[Resource]:
        if self.mode == "always":
            return resources
        kept: list[Resource] = []
        for each in resources:
            if is_page(each.uri):
                continue
            try:
                definition = define("resource", each.uri, _lasting(each))
            except ValueError:
                continue
            pin = self._pins.get(definition.key)
            accepted = pin is not None and pin.digest == definition.digest and definition.is_whole
            kept.append(each if accepted else _bare(each))
        return kept

    def page_refused(self, page: ToolPage) -> str | None:
        if self.mode == "always" or self._pages.get(page.uri) == page.digest:
            return None
        return (
            f"the page {short_name(page.uri)} is not what the owner of this server has accepted, and is not shown until they have looked"
            f" at it: `ostiary upstream accept {quote(str(self.upstream))}`"
        )

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
        """Return all that is known of it, for whoever comes in its place: not all of it need be written yet."""
        return PinnedUpstream(
            source=self.source, met=self._met, pins=dict(self._pins), met_whole=self._met_whole
        )

    @property
    def offered(self) -> Mapping[DefinitionKey, Definition]:
        """The definitions as they were last said."""
        return self._offered

    def since(self, key: DefinitionKey) -> Millis | None:
        """Return from when on it has been withheld; None: it is not."""
        return self._since.get(key)

    def accepted(self, definitions: Sequence[Definition], by: str, now: Millis) -> None:
        """Count these, which are written."""
        self._met = True
        self._pins |= {each.key: _pin(each, by, now) for each in definitions}
        self._judge_again()

    def forgotten(self, keys: Sequence[DefinitionKey] | None) -> None:
        """Count these no more, which are written no more; None: all of them."""
        self._met = self._met_whole = True
        for key in list(self._pins) if keys is None else keys:
            self._pins.pop(key, None)
        self._judge_again()

    def take(self, pinned: PinnedUpstream) -> None:
        """Take over what is written now, whoever wrote it."""
        if pinned.met and (not self._met or dict(pinned.pins) != self._pins):
            self._met, self._met_whole, self._pins = True, pinned.met_whole, dict(pinned.pins)
            self._judge_again()

    def waiting(self) -> str:
        """Tell what waits to be accepted, in words; empty where nothing does."""
        pressing = self._pressing()
        count = len(pressing)
        if not count:
            return ""
        first = min(pressing)
        named = f"the {first.kind} {clean(short_name(first.name))}"
        others = f" and {count - 1} more wait" if count > 1 else " waits"
        return f"{named}{others} to be looked at"

    def trouble(self) -> Trouble | None:
        waiting = self.waiting()
        if not waiting:
            return None
        words = f"{waiting}: ostiary upstream accept {quote(str(self.upstream))}"
        return Trouble(words, min(self._pressing().values()), kind="waits")

    def _pressing(self) -> Mapping[DefinitionKey, Millis]:
        """Return what is withheld, without resources that are new: they are offered by their address."""
        return {
            key: since for key, since in self._since.items() if key.kind != "resource" or key in self._pins
        }

    def _judge_again(self) -> None:
        if self.mode != "always" and self.seen_at is not None:
            self._judge([*self._offered.values(), *self._repeated])
            self._again()

    def _judge(self, definitions: Sequence[Definition]) -> None:
        now, before = self._clock(), set(self._pressing())
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
        if fresh := sorted(self._pressing().keys() - before):
            self._log.warning(
                "upstream.withheld",
                upstream=str(self.upstream),
                count=len(fresh),
                names=[f"{key.kind} {short_name(key.name)}" for key in fresh[:NAMED]],
                changed=sum(each.key in set(fresh) for each in self.verdict.changed),
            )


def _definitions(offered: UpstreamLists) -> tuple[list[Definition], list[str]]:
    """Return the definitions, and the names of those that cannot even be compared."""
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
        *(("page", uri, _page(page, offered)) for uri, page in offered.pages.items()),
        *(("resource", each.uri, _lasting(each)) for each in offered.resources if not is_page(each.uri)),
        *((INSTRUCTIONS.kind, INSTRUCTIONS.name, text) for text in (offered.instructions,) if text),
    ]


def _with_tasks(tool: Tool, offered: UpstreamLists) -> Tool:
    """Return the tool with whether its calls have to be tasks there, which the list that is offered on does not say. Whether they may be is
    in that list."""
    if offered.tasks.get(tool.name) != "required":
        return tool
    return msgspec.structs.replace(tool, execution=ToolExecution(task_support="required"))


def _page(page: ToolPage, offered: UpstreamLists) -> Mapping[str, Any]:
    listed = next((_lasting(each) for each in offered.resources if each.uri == page.uri), None)
    return {"listed": listed, "sha256": page.digest, "bytes": page.size, **page.said}


def _lasting(resource: Resource) -> Resource:
    """Return the resource without what changes with its content."""
    annotations = resource.annotations
    if annotations is not UNSET:
        annotations = Annotations(audience=annotations.audience, priority=annotations.priority)
    return msgspec.structs.replace(resource, size=UNSET, annotations=annotations)


def _bare(resource: Resource) -> Resource:
    """Return the resource without words of its upstream's but its address."""
    kind = resource.mime_type
    known = kind is not UNSET and _TYPE.fullmatch(kind)
    return Resource(
        uri=resource.uri, name=resource.uri, mime_type=kind if known else UNSET, size=resource.size
    )


def _those(offered: UpstreamLists, allowed: frozenset[DefinitionKey]) -> UpstreamLists:
    def gone(address: str) -> bool:
        return DefinitionKey("page", address) not in allowed

    def without_page(tool: Tool) -> Tool:
        if tool.meta is UNSET:
            return tool
        return msgspec.structs.replace(tool, meta=without_pages(tool.meta, gone))

    return msgspec.structs.replace(
        offered,
        tools=[without_page(each) for each in offered.tools if DefinitionKey("tool", each.name) in allowed],
        resources=[
            each if is_page(each.uri) or DefinitionKey("resource", each.uri) in allowed else _bare(each)
            for each in offered.resources
            if not is_page(each.uri) or not gone(each.uri)
        ],
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
