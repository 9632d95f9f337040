"""Many back-ends, one catalogue: what there is to call, to read and to fill in, who answers for it, and on what terms.

Everything is checked when it is registered, and all that is wrong is reported at once. Who may see or use what is decided
in calls/rights/standing.py from the terms kept here; which kinds of principal exist is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
import trio

from server.agents.base.backend import (
    AgentRequest,
    Backend,
    ChecksArguments,
    Claim,
    CoercesArguments,
    DeclaresExtensions,
    DeclaresFeatures,
    Elsewhere,
    ExplainsRefusals,
    Feature,
    Foreign,
    HasDeadlines,
    HasFreeTools,
    HasPages,
    KeepsSessions,
    LibraryBackend,
    Neighbour,
    NoSuchResource,
    PersonalLibrary,
    Pricing,
    Reachable,
    SkillLibrary,
    ToldOfMisses,
    Trouble,
    Unlisted,
    Watched,
    Withholding,
)
from server.agents.base.name_choice import NO_OWNERS, Key, NameChoice
from server.mcp.app_pages import is_for, pages_in
from server.mcp.carried_extensions import united
from server.mcp.messages import Prompt, Resource, ResourceTemplate, Tool
from server.mcp.schema import BadTool, ToolSchema
from server.mcp.skills_extension import ListedSkill
from server.mcp.terms import DEFAULT_TERMS, PRICE_META, BadTerms, CallTerms
from server.mcp.tool_names import not_offered
from server.mcp.uri_template import BadTemplate, UriTemplate

T = TypeVar("T")

# At shutdown a back-end that hangs while it is closed must not keep the others from being closed.
CLOSE_SECONDS: Final = 5.0


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A back-end under the name it has in the configuration, and the terms of its tools."""

    name: str  # for people who look for what is wrong
    backend: Backend
    terms: CallTerms = DEFAULT_TERMS
    tool_terms: Mapping[str, CallTerms] = MappingProxyType({})
    library_terms: CallTerms | None = None  # of what is read and filled in; None: the tools'


class AgentTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is out of order, and the tools of it that are offered. `refusal`: of what stands in front of the tools of others, how
    the words end with which they are refused."""

    name: str
    backend: Backend
    trouble: Trouble
    tools: Sequence[str]
    refusal: str = ""


class ToolRules(Protocol):
    """The words of a server's owner about its tools, whoever offers them (tiers.py)."""

    @property
    def tools(self) -> Mapping[str, Any]:
        """The tools of which something is said, by their names."""
        ...

    def terms(self, tool: Tool, base: CallTerms, /) -> CallTerms | None:
        """Return the terms of a tool; None: it is not offered. Raises `BadTerms`."""
        ...


class ToolPrices(Protocol):
    """The prices of a server's tools (server/payments/seller)."""

    def price(self, tool: Tool, functions: Set[str], /) -> Any | None:
        """Return the price of a tool; None: it costs nothing. `functions` are those of its agent that know what a call costs. Raises `BadTerms`."""
        ...

    def shown(self, tool: Tool, price: Any, /) -> Tool:
        """Return the tool as callers see it who are to know what it costs."""
        ...


class CatalogPolicy(Protocol):
    """The policies in front of a server's tools (server/calls/policy)."""

    @property
    def redacts(self) -> bool:
        """True if anything is hidden of what any tool says."""
        ...

    def of(self, tool: Tool, /) -> Any | None:
        """Return the policy of a tool; None: it has none. Raises `BadTerms`."""
        ...

    def shown(self, tool: Tool, policy: Any, /) -> Tool:
        """Return the tool as callers see it, with what they have to say besides."""
        ...


class ToolEntry(msgspec.Struct, frozen=True):
    """A tool. `price` is the till's (`PricedTool`), `policy` what stands in front of it (`ToolPolicy`); None is nothing, and then nobody
    looks any further. `for_pages`: it is for pages alone, and not for models."""

    tool: Tool
    schema: ToolSchema
    backend: Backend
    terms: CallTerms
    price: Any | None = None
    policy: Any | None = None
    for_pages: bool = False


class ResourceEntry(msgspec.Struct, frozen=True):
    resource: Resource
    backend: LibraryBackend
    terms: CallTerms


class TemplateEntry(msgspec.Struct, frozen=True):
    template: ResourceTemplate
    pattern: UriTemplate
    backend: LibraryBackend
    terms: CallTerms


class PromptEntry(msgspec.Struct, frozen=True):
    prompt: Prompt
    backend: LibraryBackend
    terms: CallTerms


AnyEntry = ToolEntry | ResourceEntry | TemplateEntry | PromptEntry


class CatalogError(ValueError):
    """An offer of several agents that cannot be made together; `problems` says what to change, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems: Final = tuple(problems)


class _Lists(msgspec.Struct, frozen=True):
    tools: Mapping[str, ToolEntry]
    resources: Mapping[str, ResourceEntry]
    templates: Mapping[str, TemplateEntry]
    prompts: Mapping[str, PromptEntry]
    has_tasks: bool
    entries: tuple[ToolEntry, ...]  # of the tools, one and the same for as long as they are offered so
    named: frozenset[str]  # every tool of an agent, also those that are not offered
    names: NameChoice  # of what could have others
    features: frozenset[Feature]  # of all agents together
    left_out: tuple[str, ...] = ()

    def offered(self) -> Mapping[str, Any]:
        """Return what callers can see of each list."""
        return {
            "tools": [(entry.tool, entry.terms.scopes) for entry in self.tools.values()],
            "resources": [
                *((entry.resource, entry.terms.scopes) for entry in self.resources.values()),
                *((entry.template, entry.terms.scopes) for entry in self.templates.values()),
            ],
            "prompts": [(entry.prompt, entry.terms.scopes) for entry in self.prompts.values()],
        }


class Catalog:
    """The tools, resources and prompts of several agents, in the order of the sources and, within one, of its back-end."""

    def __init__(
        self,
        sources: Sequence[Source],
        rules: ToolRules | None = None,
        prices: ToolPrices | None = None,
        stand_ins: Mapping[str, Backend] = MappingProxyType({}),
        policy: CatalogPolicy | None = None,
        before: Catalog | None = None,
    ) -> None:
        """Ask the back-ends what they offer. `stand_ins` answer calls of these tools, which are offered as their agents have them; `before` is the
        catalogue whose place this one is to take. Raises `CatalogError`."""
        self._stand_ins = stand_ins
        self.policy = policy
        self._sources = tuple(sources)
        self._rules = rules
        self._prices = prices
        owners = NO_OWNERS if before is None else before._lists.names.owners
        self._lists = _lists(self._sources, rules, prices, stand_ins, policy, owners)
        self.tools: Mapping[str, ToolEntry] = self._lists.tools  # those that are offered now
        self.has_tasks: bool = self._lists.has_tasks  # any tool's call can be a task
        # Later an agent may take a tool back, and what the settings say of it waits for its return.
        unknown = [] if rules is None else sorted(rules.tools.keys() - self._lists.named)
        if unknown and not self.awaits_more:
            raise CatalogError(
                [f"the settings name the tool {not_offered(name, self._lists.named)}" for name in unknown]
            )
        for source in self._sources:
            if isinstance(source.backend, Neighbour):
                source.backend.beside(partial(_is_anothers, self._sources, source))

    @property
    def awaits_more(self) -> bool:
        """True if an agent is out of order, so that nobody can say yet what it would offer."""
        return any(
            isinstance(source.backend, Watched) and source.backend.trouble() is not None
            for source in self._sources
        )

    @property
    def features(self) -> frozenset[Feature]:
        """The features that any agent has now."""
        return self._lists.features

    @property
    def left_out(self) -> Sequence[str]:
        """The offers that clash with others or break a rule here, with the reason."""
        return self._lists.left_out

    def all_left_out(self) -> Sequence[str]:
        """Return `left_out`, and what agents of others have and cannot offer, which they have told the log themselves."""
        theirs = [
            f"{source.name}: {each}"
            for source in self._sources
            if isinstance(source.backend, Foreign)
            for each in source.backend.left_out()
        ]
        return [*self._lists.left_out, *theirs]

    def session_ended(self, apart: str) -> None:
        """Tell the agents that keep something for this session of a caller's client that it has ended."""
        for source in self._sources:
            if isinstance(source.backend, KeepsSessions):
                source.backend.session_ended(apart)

    def get(self, name: str) -> ToolEntry | None:
        return self._lists.tools.get(name)

    def called_by_page(self, name: str) -> ToolEntry | None:
        """Return the tool that a page calls by the name which it has at the page's own server, if that is one server's."""
        named = [
            (source.backend, here)
            for source in self._sources
            if isinstance(source.backend, HasPages)
            and (here := source.backend.called_by_page(name)) is not None
        ]
        if len(named) != 1:
            return None
        backend, here = named[0]
        here = self._lists.names.name(backend, "tool", here)
        found = self.tools.get(here)
        # Another may have that name, and this one be left out.
        return found if found is not None and found.backend in (backend, self._stand_ins.get(here)) else None

    def withheld(self, name: str) -> str | None:
        """Tell why a tool of this name is not offered, where an agent has one that its owner has not looked at."""
        for source in self._sources:
            if isinstance(source.backend, Withholding) and (words := source.backend.withheld(name)):
                return words
        return None

    @property
    def redacts(self) -> bool:
        """True if anything is hidden of what any tool says."""
        return self.policy is not None and self.policy.redacts

    def missed(self, name: str) -> None:
        """Tell the agents that a tool was called which none of them has."""
        if name in self._lists.named:
            return
        for source in self._sources:
            if isinstance(source.backend, ToldOfMisses):
                source.backend.missed(name)

    @property
    def named(self) -> frozenset[str]:
        """Every tool that an agent has, also those that are not offered."""
        return self._lists.named

    def entries(self) -> Sequence[ToolEntry]:
        return self._lists.entries

    def resources(self) -> Sequence[ResourceEntry]:
        return tuple(self._lists.resources.values())

    def templates(self) -> Sequence[TemplateEntry]:
        return tuple(self._lists.templates.values())

    def prompts(self) -> Sequence[PromptEntry]:
        return tuple(self._lists.prompts.values())

    def skills(self) -> Sequence[ListedSkill]:
        return [
            skill
            for source in self._sources
            if isinstance(source.backend, SkillLibrary)
            for skill in source.backend.listed_skills()
        ]

    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the extensions that any agent has."""
        return united(
            source.backend.extensions()
            for source in self._sources
            if isinstance(source.backend, DeclaresExtensions)
        )

    def resource(self, uri: str) -> ResourceEntry | None:
        return self._lists.resources.get(uri)

    async def resources_of(self, asked: AgentRequest) -> Sequence[ResourceEntry]:
        """List the resources that exist for this caller alone, without those that everybody can read or another agent owns."""
        lists: dict[int, Sequence[Resource]] = {}

        async def ask(number: int, library: PersonalLibrary) -> None:
            lists[number] = await library.resources_of(asked)

        personal = [
            (source, source.backend)
            for source in self._sources
            if isinstance(source.backend, PersonalLibrary)
        ]
        async with trio.open_nursery() as nursery:  # none waits for another
            for number, (_, library) in enumerate(personal):
                nursery.start_soon(ask, number, library)
        found: dict[str, ResourceEntry] = {}
        for number, (source, library) in enumerate(personal):
            terms = source.terms if source.library_terms is None else source.library_terms
            for resource in lists[number]:
                free = self.resource(resource.uri) is None and resource.uri not in found
                if free and _owner(self._sources, resource.uri) in (None, source):
                    found[resource.uri] = ResourceEntry(resource, library, terms)
        return tuple(found.values())

    def unlisted(self, uri: str, asked: AgentRequest) -> ResourceEntry | None:
        """Find whom to ask for a resource that nobody lists: who gave this caller its address, or else the only one who could have it. Raises
        `NoSuchResource` where several could."""
        owner = _owner(self._sources, uri)
        claims: dict[Claim, list[Source]] = {"given": [], "alike": [], "possible": []}
        for source in self._sources:
            backend = source.backend
            if (
                isinstance(backend, Unlisted)
                and _may_answer(backend, owner)
                and (claim := backend.claim(uri, asked))
            ):
                claims[claim].append(source)
        found = claims["given"][:1] or claims["alike"] or claims["possible"]
        if not found:
            return None
        if len(found) > 1:
            raise NoSuchResource(
                "several servers behind this one could have it, and none is known here to have named it to you: call again what linked to it"
            )
        (source,) = found
        terms = source.terms if source.library_terms is None else source.library_terms
        return ResourceEntry(Resource(uri=uri, name=uri), cast("LibraryBackend", source.backend), terms)

    def template(self, uri_template: str) -> TemplateEntry | None:
        return self._lists.templates.get(uri_template)

    def fitting(self, uri: str) -> tuple[TemplateEntry, Mapping[str, str]] | None:
        """Return the first template that the URI fits, and what its variables stand for. An address that one agent owns fits no other
        agent's."""
        owner = _owner(self._sources, uri)
        for entry in self._lists.templates.values():
            if not _may_answer(entry.backend, owner):
                continue
            found = entry.pattern.match(uri)
            if found is not None:
                return entry, found
        return None

    def prompt(self, name: str) -> PromptEntry | None:
        return self._lists.prompts.get(name)

    def refresh(self) -> frozenset[str]:
        """Ask the back-ends again, and return which of the lists "tools", "resources" and "prompts" callers see changed. Raises
        `CatalogError`, and then everything stays as it was. An offer of somebody else's server is no reason for that: as much of it as
        cannot be offered is left out."""
        return self._put(
            _lists(
                self._sources,
                self._rules,
                self._prices,
                self._stand_ins,
                self.policy,
                self._lists.names.owners,
                running=True,
            )
        )

    def take(self, newer: Catalog) -> frozenset[str]:
        """Take the place of what there is, as `newer` has it, and return which lists changed, as `refresh` does."""
        self._sources, self._rules, self._prices = newer._sources, newer._rules, newer._prices
        self._stand_ins, self.policy = newer._stand_ins, newer.policy
        return self._put(newer._lists)

    def _put(self, lists: _Lists) -> frozenset[str]:
        before, self._lists = self._lists, lists
        self.tools, self.has_tasks = lists.tools, lists.has_tasks
        seen, now = before.offered(), lists.offered()
        return frozenset(name for name in now if seen[name] != now[name])

    def troubles(self) -> Sequence[AgentTrouble]:
        """List the agents that are out of order, as their owner knows them."""
        return [
            AgentTrouble(
                name=source.name,
                backend=source.backend,
                trouble=trouble,
                tools=tuple(
                    name for name, entry in self._lists.tools.items() if entry.backend is source.backend
                ),
                refusal=source.backend.refusal if isinstance(source.backend, ExplainsRefusals) else "",
            )
            for source in self._sources
            if isinstance(source.backend, Watched) and (trouble := source.backend.trouble()) is not None
        ]

    async def reach_all(self, *, failing: bool = False) -> None:
        """Have every back-end look that can whether its agent is there, or only those that fail; `troubles` shows what came of it."""
        async with trio.open_nursery() as nursery:
            for source in self._sources:
                backend = source.backend
                if isinstance(backend, Reachable) and not (
                    failing and isinstance(backend, Watched) and backend.trouble() is None
                ):
                    nursery.start_soon(backend.reach)

    async def aclose(self) -> None:
        """Close every back-end, the last one first."""
        for source in reversed(self._sources):
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await source.backend.aclose()


def _lists(
    sources: Sequence[Source],
    rules: ToolRules | None,
    prices: ToolPrices | None,
    stand_ins: Mapping[str, Backend],
    policy: CatalogPolicy | None,
    before: Mapping[Key, object],
    *,
    running: bool = False,
) -> _Lists:
    problems: list[str] = []
    left_out: list[str] = []
    named: set[str] = set()
    tools: dict[str, ToolEntry] = {}
    resources: dict[str, ResourceEntry] = {}
    templates: dict[str, TemplateEntry] = {}
    prompts: dict[str, PromptEntry] = {}
    owners: dict[tuple[str, str], str] = {}
    # Whoever's lists do not change by themselves comes to its names before those who came later.
    ours = _reserved(sources) if running else {}
    names = NameChoice([source.backend for source in sources], before, running=running)
    if names.kept:
        called = {id(source.backend): source.name for source in sources}
        ours |= {key: called[id(backend)] for key, backend in names.kept.items()}

    def blame(source: Source, problem: str) -> None:
        forgiven = running and isinstance(source.backend, Foreign)
        (left_out if forgiven else problems).append(problem)

    def owner_of(what: str, name: str, source: Source) -> str | None:
        other = owners.get((what, name))
        if other is None and isinstance(source.backend, Foreign):
            other = ours.get((what, name))
            other = None if other == source.name else other
        return other

    def free(what: str, address: str, source: Source) -> str:
        """Return the address, or another where that is taken and there is one."""
        if owner_of(what, address, source) is None or not isinstance(source.backend, Elsewhere):
            return address
        return source.backend.elsewhere(address) or address

    def add(into: dict[str, T], what: str, name: str, source: Source, make: Callable[[], T]) -> None:
        if (other := owner_of(what, name, source)) is not None:
            blame(source, f"the {what} {name} is offered by {other} and by {source.name}: rename one of them")
            return
        try:
            into[name] = make()
        except BadTool as error:
            blame(source, f"{source.name}: {error}")
            return
        except BadTemplate as error:
            blame(source, f"{source.name}: the {what} {name}: {error}")
            return
        owners[what, name] = source.name

    def claims(source: Source, what: str, *addresses: str) -> bool:
        """Say whether it has something at an address of another's, and leave that out. A claim of somebody else's server is no reason not to start."""
        for address in addresses:
            owner = _owner(sources, address)
            if owner is None or owner is source:
                continue
            problem = f"{source.name}: {what} is at {address}, where only what {owner.name} offers can be"
            (left_out if isinstance(source.backend, Foreign) else problems).append(problem)
            return True
        return False

    for source in sources:
        backend = source.backend
        terms = source.terms if source.library_terms is None else source.library_terms
        offered = backend.tools()
        unknown = sorted(source.tool_terms.keys() - {tool.name for tool in offered})
        if not isinstance(backend, Foreign):
            problems += [
                f"{source.name} has terms for the tool {name}, which it does not offer" for name in unknown
            ]
        for tool in offered:
            if (name := names.name(backend, "tool", tool.name)) != tool.name:
                tool = msgspec.structs.replace(tool, name=name)
            named.add(name)
            if tool.meta is not msgspec.UNSET and claims(
                source, f"the page of the tool {tool.name}", *pages_in(tool.meta)
            ):
                continue
            own = _terms_of(tool, source)
            try:
                bound = own if rules is None else rules.terms(tool, own)
                price = (
                    None
                    if prices is None or isinstance(backend, HasFreeTools)
                    else prices.price(
                        tool, backend.price_functions if isinstance(backend, Pricing) else frozenset()
                    )
                )
                watched = None if policy is None or bound is None else policy.of(tool)
                if policy is not None and watched is not None:
                    tool = policy.shown(tool, watched)
            except BadTerms as error:
                blame(source, f"{source.name}: {error}")
                continue
            if bound is None:
                continue
            seen = _priceless(tool) if prices is None or price is None else prices.shown(tool, price)
            answers = stand_ins.get(tool.name, backend)
            if bound.unchecked and (
                price is not None
                or answers is not backend
                or (watched is not None and watched.reads_arguments)
            ):
                bound = msgspec.structs.replace(bound, unchecked=False)
            add(tools, "tool", tool.name, source, partial(_entry, tool, seen, answers, bound, price, watched))
        if not isinstance(backend, LibraryBackend):
            continue
        library: LibraryBackend = backend
        for resource in library.resources():
            if claims(source, f"the resource {resource.name}", resource.uri):
                continue
            if (uri := free("resource", resource.uri, source)) != resource.uri:
                resource = msgspec.structs.replace(resource, uri=uri)
            add(
                resources,
                "resource",
                resource.uri,
                source,
                lambda: ResourceEntry(resource, library, terms),  # noqa: B023
            )
        for template in library.resource_templates():
            if claims(source, f"the resource template {template.name}", template.uri_template):
                continue
            text = free("resource template", template.uri_template, source)
            if text != template.uri_template:
                template = msgspec.structs.replace(template, uri_template=text)
            add(
                templates,
                "resource template",
                text,
                source,
                lambda: TemplateEntry(template, _pattern(text, library), library, terms),  # noqa: B023
            )
        for prompt in library.prompts():
            if (name := names.name(library, "prompt", prompt.name)) != prompt.name:
                prompt = msgspec.structs.replace(prompt, name=name)
            add(prompts, "prompt", prompt.name, source, lambda: PromptEntry(prompt, library, terms))  # noqa: B023
    if problems:
        raise CatalogError(problems)
    return _Lists(
        MappingProxyType(tools),
        MappingProxyType(resources),
        MappingProxyType(templates),
        MappingProxyType(prompts),
        any(_may_be_task(entry.tool) for entry in tools.values()),
        tuple(tools.values()),
        frozenset(named),
        names,
        frozenset[Feature]().union(*(_features(source.backend) for source in sources)),
        tuple(left_out),
    )


def _pattern(text: str, library: LibraryBackend) -> UriTemplate:
    return UriTemplate(text, wildcards=isinstance(library, Foreign))


def _owner(sources: Sequence[Source], address: str) -> Source | None:
    """Return whose address it is, if it is one that only one agent may have."""
    for source in sources:
        if isinstance(source.backend, Elsewhere) and source.backend.owns(address):
            return source
    return None


def _is_anothers(sources: Sequence[Source], source: Source, address: str) -> bool:
    return _owner(sources, address) not in (None, source)


def _may_answer(backend: object, owner: Source | None) -> bool:
    """Say whether this one may answer at an address whose owner this is."""
    return owner is None or backend is owner.backend


def _features(backend: Backend) -> frozenset[Feature]:
    declared = backend.features if isinstance(backend, DeclaresFeatures) else frozenset[Feature]()
    if not isinstance(backend, LibraryBackend):
        return declared
    lists: Mapping[Feature, object] = {
        "resources": backend.resources() or backend.resource_templates(),
        "prompts": backend.prompts(),
        "completions": backend.completes(),
    }
    return declared.union(feature for feature, entries in lists.items() if entries)


def _reserved(sources: Sequence[Source]) -> dict[tuple[str, str], str]:
    """Return what those offer whose lists are of their own making: kind and name, and who."""
    found: dict[tuple[str, str], str] = {}
    for source in sources:
        backend = source.backend
        if isinstance(backend, Foreign):
            continue
        found |= {("tool", tool.name): source.name for tool in backend.tools()}
        if isinstance(backend, LibraryBackend):
            found |= {("resource", each.uri): source.name for each in backend.resources()}
            found |= {
                ("resource template", each.uri_template): source.name for each in backend.resource_templates()
            }
            found |= {("prompt", each.name): source.name for each in backend.prompts()}
    return found


def _entry(
    tool: Tool, seen: Tool, backend: Backend, terms: CallTerms, price: Any | None, policy: Any | None
) -> ToolEntry:
    for_pages = not is_for(tool.meta, "model")
    return ToolEntry(seen, ToolSchema(tool), backend, terms, price, policy, for_pages)


def _priceless(tool: Tool) -> Tool:
    """Return a tool without what its author says that it costs: here it costs nothing."""
    if tool.meta is msgspec.UNSET or PRICE_META not in tool.meta:
        return tool
    rest = {key: value for key, value in tool.meta.items() if key != PRICE_META}
    return msgspec.structs.replace(tool, meta=rest or msgspec.UNSET)


def _terms_of(tool: Tool, source: Source) -> CallTerms:
    terms = source.tool_terms.get(tool.name, source.terms)
    seconds = source.backend.deadline(tool.name) if isinstance(source.backend, HasDeadlines) else None
    if seconds is not None:
        terms = msgspec.structs.replace(terms, deadline_seconds=seconds)
    if isinstance(source.backend, CoercesArguments) and source.backend.coerces(tool.name):
        terms = msgspec.structs.replace(terms, coerces=True)
    if isinstance(source.backend, ChecksArguments) and source.backend.checks_arguments:
        terms = msgspec.structs.replace(terms, unchecked=True)
    return terms


def _may_be_task(tool: Tool) -> bool:
    return tool.execution is not msgspec.UNSET and tool.execution.task_support != "forbidden"
