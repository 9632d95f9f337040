"""What is read and filled in rather than called: resources, prompts, and completions of their arguments.

    principal → visible → scope → arguments → back-end under a deadline → record

The counterpart of calls.py, with the same rules about who may do what: what a caller may not know of is not found.
Spec: server/resources, server/prompts, server/utilities/completion (2026-07-28).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from auth.model import Principal, PrincipalKind
from server.backends.base import (
    NO_ARGUMENTS,
    BackendError,
    BadArguments,
    CannotAsk,
    Completing,
    Completion,
    LogLevel,
    NoSuchResource,
    Outlet,
    Paused,
    PromptFinal,
    PromptGet,
    ResourceRead,
)
from server.backends.catalog import AnyEntry, Catalog, PromptEntry, ResourceEntry, TemplateEntry, Terms
from server.backends.outlets import Unhurried
from server.calls import MUTE, Measure, told
from server.mcp.errors import (
    BackendFailed,
    BadParams,
    InsufficientScope,
    InternalError,
    McpError,
    UnknownPrompt,
    UnknownResource,
)
from server.mcp.messages import Prompt, Resource, ResourceContents, ResourceTemplate
from server.standing import Policy, Standing, challenged, everyone, standing

T = TypeVar("T")

# As many as the protocol lets an answer hold.
MAX_COMPLETIONS: Final = 100
# Longer ones are no address of anything that was listed.
MAX_URI: Final = 8192


ME: Final = "ostiary://me"
ABOUT_ME: Final = Resource(
    uri=ME,
    name="me",
    title="Who you are here",
    description="The login or key that this connection uses: whose it is, what it may do, and how long it lasts",
    mime_type="application/json",
)
# No scope, and time for one look into the store.
OWN: Final = Terms(deadline_seconds=30)
ASKED_WHO_THEY_ARE: Final = frozenset({PrincipalKind.USER, PrincipalKind.CLIENT, PrincipalKind.API_KEY})


class Me(Protocol):
    async def read(self, principal: Principal) -> ResourceContents:
        """Raises `BackendError`."""
        ...


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads, and on what line."""

    principal: Principal
    call_id: str
    outlet: Outlet = MUTE
    can: frozenset[str] = frozenset()
    resumed: Any = None
    wants_progress: bool = False
    log_level: LogLevel | None = None

    def told(self) -> Mapping[str, Any]:
        """What every kind of question to a back-end says of who asks it."""
        return {
            "subject": self.principal.subject,
            "call_id": self.call_id,
            "can": self.can,
            "resumed": self.resumed,
            "wants_progress": self.wants_progress,
            "log_level": self.log_level,
        }


class Library:
    """`measure` is told of every use; `policy` says who may know of what at all."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        log: FilteringBoundLogger,
        measure: Measure,
        policy: Policy = everyone,
        me: Me | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`me`: what callers with a login or a key are told of themselves, where there are any."""
        self._me = me
        self._catalog = catalog
        self._log = log
        self._measure = measure
        self._policy = policy
        self._clock = clock

    @property
    def exists(self) -> bool:
        """Whether there is a back-end that could offer any of it."""
        return self._catalog.has_library

    @property
    def has_resources(self) -> bool:
        """Whether there is anything that could be read."""
        return self._me is not None or self.exists

    def resources(self, principal: Principal) -> Sequence[Resource]:
        own = self._catalog.resources()
        me = [] if self._mine(principal, ME) is None else [ABOUT_ME]
        # Ours comes last, and hides an agent's of the same address.
        return [
            *(
                entry.resource
                for entry in own
                if self._visible(principal, entry) and not (me and entry.resource.uri == ME)
            ),
            *me,
        ]

    def templates(self, principal: Principal) -> Sequence[ResourceTemplate]:
        return [entry.template for entry in self._catalog.templates() if self._visible(principal, entry)]

    def prompts(self, principal: Principal) -> Sequence[Prompt]:
        return [entry.prompt for entry in self._catalog.prompts() if self._visible(principal, entry)]

    def readable(self, principal: Principal, uri: str) -> bool:
        """Whether the caller may read it, as far as can be said without reading it."""
        if self._mine(principal, uri) is not None:
            return True
        found = self._find(uri)
        return found is not None and self._standing(principal, found[0]) is Standing.ALLOWED

    async def read(self, reader: Reader, uri: str) -> Sequence[ResourceContents]:
        """Raises `UnknownResource`, `InsufficientScope`, `MissingCapability`, `BackendFailed`, and `Paused`."""
        me = self._mine(reader.principal, uri)
        if me is not None:

            async def tell(_outlet: Outlet) -> Sequence[ResourceContents]:
                return (await me.read(reader.principal),)

            return await self._perform("resources/read", uri, reader, OWN, tell)
        found = self._find(uri)
        if found is None or self._standing(reader.principal, found[0]) is Standing.HIDDEN:
            raise UnknownResource(uri)
        entry, arguments = found
        template = entry.template.uri_template if isinstance(entry, TemplateEntry) else None
        question = ResourceRead(uri=uri, template=template, arguments=arguments, **reader.told())

        async def read(outlet: Outlet) -> Sequence[ResourceContents]:
            try:
                contents = await entry.backend.read(question, outlet)
            except NoSuchResource as error:
                raise UnknownResource(uri, str(error)) from error
            if not contents:
                # An empty list would say that it is there and has no content.
                raise UnknownResource(uri)
            return contents

        return await self._perform("resources/read", template or uri, reader, entry.terms, read)

    async def get_prompt(self, reader: Reader, name: str, arguments: Mapping[str, str]) -> PromptFinal:
        """Raises `UnknownPrompt`, `BadParams`, and as `read` does."""
        entry = self._catalog.prompt(name)
        if entry is None or self._standing(reader.principal, entry) is Standing.HIDDEN:
            raise UnknownPrompt(name)
        declared = () if entry.prompt.arguments is msgspec.UNSET else entry.prompt.arguments
        missing = [one.name for one in declared if one.required is True and one.name not in arguments]
        if missing:
            raise BadParams(f"the prompt {name} needs the argument {', '.join(missing)}")
        question = PromptGet(prompt=name, arguments=arguments, **reader.told())
        return await self._perform(
            "prompts/get",
            name,
            reader,
            entry.terms,
            lambda outlet: entry.backend.get_prompt(question, outlet),
        )

    async def complete(
        self, reader: Reader, entry: PromptEntry | TemplateEntry, argument: str, value: str, known: Mapping[str, str]
    ) -> Completion:  # fmt: skip
        ref, name = (
            ("prompt", entry.prompt.name)
            if isinstance(entry, PromptEntry)
            else ("resource", entry.template.uri_template)
        )
        if (ref, name) not in entry.backend.completes():
            return Completion(values=(), total=0, has_more=False)
        question = Completing(
            ref=ref, name=name, argument=argument, value=value, known=known, **reader.told()
        )
        found = await self._perform(
            "completion/complete", name, reader, entry.terms, lambda _outlet: entry.backend.complete(question)
        )
        if len(found.values) <= MAX_COMPLETIONS:
            return found
        total = found.total or len(found.values)
        return Completion(values=found.values[:MAX_COMPLETIONS], total=total, has_more=True)

    def completed_prompt(self, principal: Principal, name: str, argument: str) -> PromptEntry:
        """The prompt whose argument is to be completed. Raises `UnknownPrompt`, `BadParams`."""
        entry = self._catalog.prompt(name)
        if entry is None or not self._visible(principal, entry):
            raise UnknownPrompt(name)
        declared = () if entry.prompt.arguments is msgspec.UNSET else entry.prompt.arguments
        if all(one.name != argument for one in declared):
            raise BadParams(f"the prompt {name} has no argument {argument[:100]}")
        return entry

    def completed_template(self, principal: Principal, uri: str, argument: str) -> TemplateEntry:
        """The template whose variable is to be completed. Raises `BadParams`."""
        entry = self._catalog.template(uri)
        if entry is None or not self._visible(principal, entry):
            # Nothing is read here, so it is no missing resource, which has a code of its own in the handshake era.
            raise BadParams(f"unknown resource template: {uri[:200]}")
        if argument not in entry.pattern.variables:
            raise BadParams(f"the template {uri[:200]} has no variable {argument[:100]}")
        return entry

    def _mine(self, principal: Principal, uri: str) -> Me | None:
        known = uri == ME and principal.kind in ASKED_WHO_THEY_ARE
        return self._me if known else None

    def _find(self, uri: str) -> tuple[ResourceEntry | TemplateEntry, Mapping[str, str]] | None:
        if len(uri) > MAX_URI:
            return None
        entry = self._catalog.resource(uri)
        return self._catalog.fitting(uri) if entry is None else (entry, NO_ARGUMENTS)

    def _standing(self, principal: Principal, entry: AnyEntry) -> Standing:
        return standing(principal, entry.terms) if self._policy(principal, entry) else Standing.HIDDEN

    def _visible(self, principal: Principal, entry: AnyEntry) -> bool:
        return self._standing(principal, entry) is not Standing.HIDDEN

    async def _perform(
        self, method: str, name: str, reader: Reader, terms: Terms, run: Callable[[Outlet], Awaitable[T]]
    ) -> T:
        started = self._clock()
        outcome = "cancelled"
        try:
            if standing(reader.principal, terms) is Standing.GRANTABLE:
                raise InsufficientScope(challenged(reader.principal, terms))
            with trio.move_on_after(terms.deadline_seconds) as deadline:
                answer = await run(Unhurried(reader.outlet, deadline))
                outcome = "ok"
                return answer
            outcome = "timeout"
            raise BackendFailed(f"{name} did not answer within {terms.deadline_seconds:g} seconds")
        except Paused:
            outcome = "asked"
            raise
        except BadArguments as error:
            outcome = "invalid"
            raise BadParams(str(error)) from error
        except BackendError as error:
            outcome = "refused" if isinstance(error, CannotAsk) else "failed"
            raise told(error) from error
        except McpError:
            outcome = outcome if outcome == "timeout" else "refused"
            raise
        except Exception as error:
            outcome = "crashed"
            self._log.exception("library.crashed", method=method, name=name, request=reader.call_id)
            raise InternalError(reader.call_id) from error
        finally:
            self._record(method, name, reader, outcome, self._clock() - started)

    def _record(self, method: str, name: str, reader: Reader, outcome: str, seconds: float) -> None:
        self._measure(method, outcome, seconds)
        self._log.info(
            "library.used",
            method=method,
            name=name[:200],
            outcome=outcome,
            ms=round(seconds * 1000, 3),
            principal=reader.principal.kind.value,
            client=reader.principal.client_id,
            grant=reader.principal.grant_id,
            request=reader.call_id,
        )
