"""The back-end, which answers calls. A back-end lists its tools and runs one call at a time per task, telling the caller what happens.

A back-end never knows the protocol era, the principal's token, or HTTP. Cancelling the task that runs a call stops the
work; the deadline is a cancel scope set by the caller. Errors that a user should read are raised as `BackendError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LaterNews, LogLevel, Outlet
from server.mcp.caller_view import CallerIdentity
from server.mcp.carried_extensions import is_extension
from server.mcp.messages import (
    Implementation,
    Prompt,
    Resource,
    ResourceContents,
    ResourceTemplate,
    Tool,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.mcp.skills_extension import ListedSkill

if TYPE_CHECKING:  # every command reads settings, and with them what an agent's are
    import trio

NO_ARGUMENTS: Mapping[str, str] = MappingProxyType({})


class AskedBy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caller, as far as the author of an agent may know of it. Names are what the owner knows them by; never a token."""

    kind: str = ""
    person: str = ""
    program: str = ""
    client_id: str | None = None
    scopes: Sequence[str] = ()
    # What the caller's client calls itself, which nobody has checked.
    client_name: str = ""
    client_version: str = ""
    # The same text for all that belongs together: a session, or else the caller. Empty where one caller cannot be told from others.
    session: str = ""


UseKind: TypeAlias = Literal["tool", "resource", "prompt"]


# What lets somebody in, or pays: nothing that a file is to see, and nothing that it could use.
SECRET_HEADERS: Final = frozenset(
    {
        "authorization", "cookie", "dpop", "mcp-session-id", "payment-signature", "proxy-authorization", "set-cookie", "x-api-key",
        "x-payment",
    }
)  # fmt: skip


class Origin(Protocol):
    """The request that a call belongs to: for a back-end whose author asks who calls, or uses what else this server has in the
    caller's name."""

    traceparent: str | None  # where the call is traced: what belongs to it says so with this

    @property
    def apart(self) -> str:
        """Name its caller and its client's session, to tell them from all others: the same for what is done later, or inside of it."""
        ...

    @property
    def without_tasks(self) -> bool:
        """True if its client, of the stateless era, takes no tasks: what is always a task is not for it."""
        ...

    def asked_by(self) -> AskedBy: ...

    def header(self, name: bytes) -> str | None:
        """Return a header as it came, but for `traceparent` of a traced call; the name in lower case. None of `SECRET_HEADERS`."""
        ...

    def later(self) -> LaterNews | None:
        """Return the way to the session of its caller, for what is said there after it."""
        ...

    async def use(self, what: UseKind, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result as it goes over the wire. Raises `NoSuchResource`, and `BackendError` for whatever else keeps the caller from it."""
        ...


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and what that caller is able to do: part of every kind of call."""

    subject: str  # opaque; never a token
    sharer: str = ""  # whose part of what callers share of this agent it takes; as opaque
    call_id: str  # ours, for logs and upstream request ids
    # What the caller can be asked for: words of `server.mcp.call_questions.ABILITIES`.
    can: frozenset[str] = frozenset()
    resumed: Any = None  # the last checkpoint of an earlier run of this very call
    wants_progress: bool = False
    log_level: LogLevel | None = None  # None: the caller wants no log messages
    unhurried: bool = False  # a task: it may wait for its turn as long as it takes
    # Its client speaks the handshake era: where that makes a difference, it is spoken on.
    handshake: bool = False
    # What the client can be asked for in all of its session; None: it has none, or that is not known.
    session_can: frozenset[str] | None = None
    caller: CallerIdentity | None = None  # None: nobody in particular
    came: msgspec.Raw | None = None  # its parameters as they came, `_meta` and all, where they are known
    origin: Origin | None = None

    @property
    def apart(self) -> str:
        """Name the caller and its client's session, to tell them from all others. Strangers without a session are told apart by address."""
        return f"{self.subject} {self.sharer}" if self.origin is None else self.origin.apart

    def bare(self) -> AgentRequest:
        """Name its caller and its client's extensions, and nothing that belongs to the request: for what outlives it."""
        return AgentRequest(
            subject=self.subject,
            sharer=self.sharer,
            call_id=self.call_id,
            can=frozenset(filter(is_extension, self.can)),
            caller=self.caller,
            handshake=self.handshake,
            session_can=self.session_can,
        )

    def quiet(self) -> AgentRequest:
        """Return the request without anybody who is asked or told meanwhile."""
        return msgspec.structs.replace(self, can=frozenset(), wants_progress=False, log_level=None)

    def later(self) -> LaterNews | None:
        return None if self.origin is None else self.origin.later()

    @property
    def told_apart(self) -> bool:
        """True if `subject` is one caller: all who show nothing, or nothing but a payment, have one between them."""
        return self.caller is not None and self.caller.identified


class ToolCall(AgentRequest, frozen=True, kw_only=True):
    tool: str
    arguments: Mapping[str, Any]
    sold: int | None = None  # for so many millionths of a dollar; None: its caller pays nothing for it
    sold_as_said: bool = False  # which follows from what this agent said that it costs


class ResourceRead(AgentRequest, frozen=True, kw_only=True):
    uri: str
    template: str | None = None  # the `uriTemplate` that the URI fits, where it is no resource of its own
    arguments: Mapping[str, str] = NO_ARGUMENTS  # what the template's variables stand for


class PromptGet(AgentRequest, frozen=True, kw_only=True):
    prompt: str
    arguments: Mapping[str, str]


class Completing(AgentRequest, frozen=True, kw_only=True):
    """The question what an argument of a prompt, or a variable of a template, could be."""

    ref: Literal["prompt", "resource"]
    name: str  # the prompt's name, or the template
    argument: str
    value: str  # what was typed so far
    known: Mapping[str, str] = NO_ARGUMENTS  # arguments that are settled


class PriceAsked(AgentRequest, frozen=True, kw_only=True):
    """The question what a call of a tool would cost."""

    function: str  # by the name that the agent gave it
    tool: str
    arguments: Mapping[str, Any]


class Unreached(BackendError):
    """Nobody answers where the agent is: nothing of the call was sent."""


class AnswerLost(BackendError):
    """No answer came to what was sent: nobody can say whether it was done."""


class ToolCrashed(BackendError):
    """The tool was run, and failed in a way that its author did not foresee. The model may make something of it."""


class Replaced(BackendError):
    """The end of a call whose agent was put aside for a newer one meanwhile. The newer one may be asked."""


class NoSuchResource(BackendError):
    """A template's variables name nothing that exists. Without a text, the caller is told just that."""


class BadArguments(BackendError):
    """A prompt's or completion's arguments are not what it takes."""


class ProtocolFailure(BackendError):
    """The author of a tool wants the caller to see a JSON-RPC error with a code of their own."""

    def __init__(self, text: str, code: int, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.data = data


class Backend(Protocol):
    def tools(self) -> Sequence[Tool]: ...

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """Run one call. Raises `BackendError` when it could not be carried out; a tool's own failure is `is_error`."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class LibraryBackend(Protocol):
    """The further methods of a back-end that offers more than tools."""

    def resources(self) -> Sequence[Resource]: ...

    def resource_templates(self) -> Sequence[ResourceTemplate]: ...

    def prompts(self) -> Sequence[Prompt]: ...

    def completes(self) -> frozenset[tuple[str, str]]:
        """Return each ("prompt", name) and ("resource", template) that `complete` knows something about."""
        ...

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        """Read a resource. Raises `NoSuchResource`."""
        ...

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        """Get a prompt. Raises `BadArguments`."""
        ...

    async def complete(self, asked: Completing) -> CompletionResult: ...


# Features of the protocol besides tools. "subscribe" is of resources; "logging" of whoever tells callers' clients something.
Feature: TypeAlias = Literal["resources", "prompts", "completions", "subscribe", "logging", "skills"]


@runtime_checkable
class DeclaresFeatures(Protocol):
    """A back-end with features that its lists do not show: a list of a `LibraryBackend` that is not empty is a feature by itself."""

    @property
    def features(self) -> frozenset[Feature]:
        """Name the features that it has now."""
        ...


@runtime_checkable
class DeclaresExtensions(Protocol):
    """A back-end that has extensions of the protocol which its server need not know."""

    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return their names and contents, as they are now."""
        ...


@runtime_checkable
class HasPages(Protocol):
    """A back-end whose tools have pages that may call its tools by the names which they have there."""

    def called_by_page(self, name: str) -> str | None:
        """Return the name here of the tool that a page calls so; None: there is none."""
        ...


@runtime_checkable
class SkillLibrary(Protocol):
    """A library among whose resources are Agent Skills."""

    def listed_skills(self) -> Sequence[ListedSkill]: ...


@runtime_checkable
class Pricing(Protocol):
    """A back-end whose author has functions that know what a call costs."""

    @property
    def price_functions(self) -> frozenset[str]: ...

    async def price(self, asked: PriceAsked) -> str:
        """Return `"$0.02"` or `"free"`, unchecked. Raises `BackendError`."""
        ...


@runtime_checkable
class HasDeadlines(Protocol):
    """A back-end that says itself how long a call of a tool may take."""

    def deadline(self, tool: str) -> float | None:
        """Return seconds; None for the deadline that was settled for all of its tools."""
        ...


@runtime_checkable
class CoercesArguments(Protocol):
    """A back-end whose author lets a tool take a text for the number, or the like, that it says."""

    def coerces(self, tool: str) -> bool: ...


@runtime_checkable
class ChecksArguments(Protocol):
    """A back-end whose agent checks the arguments of calls by a schema of its own, and says in its own words what is wrong."""

    @property
    def checks_arguments(self) -> bool: ...


Millis: TypeAlias = int  # of Unix time


class Trouble(msgspec.Struct, frozen=True):
    """A fault of an agent, for its owner. Only the kind `fails` keeps calls from being answered: with `waits` the agent works, and
    something waits for its owner to look at; with `begins` the agent has not been there yet."""

    words: str
    since: Millis
    kind: Literal["fails", "waits", "begins"] = "fails"


@runtime_checkable
class Watched(Protocol):
    """A back-end that can be out of order while the server runs."""

    def trouble(self) -> Trouble | None: ...


@runtime_checkable
class ExplainsRefusals(Protocol):
    """A guard in front of the tools of others. While the guard is out of order their calls are refused, and the words end with these."""

    @property
    def refusal(self) -> str: ...


@runtime_checkable
class Reachable(Protocol):
    """A back-end that can find out whether its agent is there without asking it anything that somebody else would be asked."""

    async def reach(self) -> None:
        """Look whether the agent is there; `trouble` shows the finding. This takes a few seconds at most."""
        ...


@runtime_checkable
class Elsewhere(Protocol):
    """A back-end whose resources can be offered under other addresses, where another has theirs."""

    def elsewhere(self, address: str) -> str | None:
        """Return another address of a resource or a template, which `read` understands; None where there is none."""
        ...

    def owns(self, address: str) -> bool:
        """Return whether nobody else may offer anything at this address, nor speak of it as theirs."""
        ...


@runtime_checkable
class SecondNames(Protocol):
    """A back-end that may know what it offers by two names each, and understands both."""

    @property
    def gives_way(self) -> bool:
        """The decision that the second name stands wherever another agent has the first."""
        ...

    def second_name(self, what: str, name: str, /) -> str:
        """Return the second name of this "tool" or "prompt"."""
        ...


@runtime_checkable
class Neighbour(Protocol):
    """A back-end whose answers may name addresses, also those of others beside it."""

    def beside(self, anothers: Callable[[str], bool]) -> None:
        """Remember `anothers`, which says whether an address is one that another alone may have."""
        ...


@runtime_checkable
class Foreign(Protocol):
    """A back-end whose lists somebody else decides on and may change at any time: what is wrong with them is no mistake of its owner's."""

    @property
    def speaks_for(self) -> str:
        """The one who decides on the lists, in words."""
        ...

    def left_out(self) -> Sequence[str]:
        """Tell what there is and cannot be offered, and why."""
        ...


@runtime_checkable
class Withholding(Protocol):
    """A back-end that does not offer all that it could, until its owner has looked at it."""

    def withheld(self, tool: str) -> str | None:
        """Return what a caller of a tool of this name is told; None where there is nothing to tell."""
        ...


@runtime_checkable
class ToldOfMisses(Protocol):
    """A back-end whose lists may be older than what it has."""

    def missed(self, tool: str) -> None:
        """Look again whether there is a tool of this name, without waiting: somebody has called it, and it is not in the lists."""
        ...


@runtime_checkable
class PersonalLibrary(LibraryBackend, Protocol):
    """A back-end that may have resources which exist for one caller alone."""

    async def resources_of(self, asked: AgentRequest) -> Sequence[Resource]:
        """List those that are not in `resources`. Resources that cannot be found out are left out."""
        ...


# How much speaks for asking a back-end for an address: an answer of it named that to this very caller, it lists others of the kind, or nothing.
Claim: TypeAlias = Literal["given", "alike", "possible"]


@runtime_checkable
class Unlisted(Protocol):
    """A back-end that may have resources which stand in no list, as those that its answers link to."""

    def claim(self, uri: str, asked: AgentRequest) -> Claim | None:
        """Return what speaks for asking it; None: it is not to be asked."""
        ...


@runtime_checkable
class KeepsSessions(Protocol):
    """A back-end that keeps something for each caller, or for each session of a caller's client."""

    def session_ended(self, apart: str) -> None:
        """Let go, without waiting, of what is kept for a session whose client ended it. `apart` is `AgentRequest.apart` of its requests."""
        ...


@runtime_checkable
class Following(Protocol):
    """A back-end that tells of changes to a resource only once it knows that somebody listens for them."""

    def follow(self, uri: str, asked: AgentRequest | None = None) -> None:
        """Begin to follow a resource, without waiting; `asked`: by whom this is wanted, where that is known."""
        ...


@runtime_checkable
class HasFreeTools(Protocol):
    """A back-end of the server's own, whose tools cost nothing whatever the others do."""

    @property
    def costless(self) -> bool: ...


@runtime_checkable
class TellsWhenBusy(Protocol):
    """A back-end that knows whether anything of it is still under way."""

    @property
    def busy(self) -> bool: ...


@runtime_checkable
class TellsStartupError(Protocol):
    """A back-end that offers what somebody else has, and is made whether that one is there or not."""

    def absent(self) -> str | None:
        """Return why that one was not there when tried, where the settings want it to be; None where nothing is amiss."""
        ...


@runtime_checkable
class Instructing(Protocol):
    """A back-end that says how what it offers is meant to be used: where no other of a server does, its clients are told."""

    def instructions(self) -> str:
        """Return the instructions as they are now; "" for none."""
        ...


@runtime_checkable
class TellsServerInfo(Protocol):
    """A back-end that says who it is: where it is all that a server has, clients are told that."""

    def introduction(self) -> Implementation | None:
        """Return what it says of itself now, with ours for what is empty; None: nothing."""
        ...


class Announce(msgspec.Struct, frozen=True):
    """Whom a back-end tells that something changed. Neither waits."""

    lists: Callable[[], None]  # what is offered
    resource: Callable[[str], None]  # the content of this URI
    # The content of this URI as one caller has it, who is named as `AgentRequest.apart` does.
    own_resource: Callable[[str, str], None] = lambda uri, apart: None


@runtime_checkable
class Active(Protocol):
    """A back-end with work of its own: it is run as long as the server, and knows its lists once it has started."""

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        """Run as long as the server. Raises `BackendError` before it has started if it cannot be used; afterwards it copes by itself."""
        ...
