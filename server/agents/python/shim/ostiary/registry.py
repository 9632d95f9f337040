"""The offers that a file has registered, and the decorators that register them.

Decorators reach the registry of the file that is being loaded, and functions that run that of their server. A child has one;
several files in one process have one each, told apart by a context variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

from .convert import options_of
from .errors import Misuse
from .hooks import Hook, Lifespan
from .offers import (
    Completion,
    Defaults,
    Prompt,
    PromptOptions,
    Resource,
    ResourceOptions,
    Tool,
    ToolOptions,
)
from .page import MIME_TYPE, PlacedPage
from .plain import to_text
from .prices import PRICE, Price

if TYPE_CHECKING:
    from typing_extensions import Unpack


F = TypeVar("F", bound=Callable[..., Any])


class Registry:
    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}  # templates too, by their address
        self.pages: dict[str, PlacedPage] = {}  # by their address
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str], Completion] = {}
        self.prices: dict[str, Price] = {}  # by the names of their functions
        self.lifespans: list[Lifespan] = []
        self.hooks: list[Hook] = []  # around the tools of this file
        self.defaults = Defaults()
        self.including: set[str] = set()  # the files that led to this one, and itself
        self.included: set[str] = set()  # those that are part of it
        # Set while somebody serves it; both may be called from any thread.
        self.changed: Callable[[], None] | None = None
        self.updated: Callable[[str], None] | None = None

    def add_tool(self, tool: Tool) -> None:
        if tool.hooks is None:
            tool.hooks = self.hooks
        taken = f"there is a tool {tool.name!r} already; give it a name="
        self._add(self.tools, tool.name, tool, taken)
        page = tool.page
        if page is None:
            return
        title = os.path.basename(page.file)
        placed = self.pages.setdefault(page.uri, page)
        if page.uri not in self.resources:
            meta = {"ui": page.page.ui} if page.page.ui else None
            self.add_resource(
                Resource(
                    page.uri,
                    page.read,
                    name=title,
                    description="A page that hosts draw beside the answers of tools.",
                    mime_type=MIME_TYPE,
                    meta=meta,
                )
            )
        elif placed.file != page.file or page.page.ui not in ({}, placed.page.ui):
            raise Misuse(
                f"{tool.function.where}: there is a page {title} already, of another file or with other bounds; give this one another name"
            )

    def add_resource(self, resource: Resource) -> None:
        self._add(self.resources, resource.uri, resource, f"{resource.uri} is a resource already")

    def add_prompt(self, prompt: Prompt) -> None:
        taken = f"there is a prompt {prompt.name!r} already; give it a name="
        self._add(self.prompts, prompt.name, prompt, taken)

    def add_completion(self, completion: Completion) -> None:
        key = (completion.target, completion.argument)
        self._add(self.completions, key, completion, "there is one for it already")

    def add_price(self, price: Price) -> None:
        if price.tool is not None and any(other.tool == price.tool for other in self.prices.values()):
            raise Misuse(f"{price.function.where}: {price.tool!r} has a price function already")
        self._add(self.prices, price.name, price, "there is a price function of that name already")

    def _add(self, offers: dict[Any, Any], key: Any, offer: Any, taken: str) -> None:
        where: str = offer.function.where
        try:
            to_text(getattr(offer, "wire", None))
        except (TypeError, ValueError, RecursionError) as error:
            raise Misuse(f"{where}: what it is said to be cannot be written as JSON: {error}") from error
        if key in offers:
            raise Misuse(f"{where}: {taken}")
        offers[key] = offer
        self._tell()

    def add_lifespan(self, lifespan: Lifespan) -> None:
        if any(other.module == lifespan.module for other in self.lifespans):
            raise Misuse(f"{lifespan.function.where}: a file has one lifespan; open several things in it")
        self.lifespans.append(lifespan)

    def take(self, inner: Registry, prefix: str) -> None:
        """Take all that another file offers, under names that begin with the prefix. Its tools keep the hooks of their file."""
        names = f"{prefix}_" if prefix else ""
        moved = {uri: _below(uri, prefix) for uri in inner.resources}
        for resource in inner.resources.values():
            resource.move(moved[resource.uri])
            self.add_resource(resource)
        for tool in inner.tools.values():
            tool.rename(names + tool.name)
            tool.move_page(moved)
            self.add_tool(tool)
        for prompt in inner.prompts.values():
            prompt.rename(names + prompt.name)
            self.add_prompt(prompt)
        for completion in inner.completions.values():
            completion.target = moved.get(completion.target, names + completion.target)
            self.add_completion(completion)
        for price in inner.prices.values():
            price.name, price.tool = names + price.name, None if price.tool is None else names + price.tool
            self.add_price(price)
        for lifespan in inner.lifespans:
            self.add_lifespan(lifespan)

    def remove(self, offers: dict[str, Any], key: str, what: str) -> None:
        if offers.pop(key, None) is None:
            raise Misuse(f"there is no {what} {key!r} to remove")
        for target, argument in list(self.completions):
            if target == key:
                del self.completions[target, argument]
        self._tell()

    def is_empty(self) -> bool:
        return not (self.tools or self.resources or self.prompts)

    def check(self) -> None:
        """Check, when the file has been loaded, that every completion completes something. Raises `Misuse`."""
        for (target, argument), completion in self.completions.items():
            names = self.arguments_of(target)
            if names is None:
                raise Misuse(f"{completion.function.where}: there is no such prompt or template")
            if argument not in names:
                raise Misuse(f"{completion.function.where}: it has {', '.join(names) or 'no arguments'}")
        for price in self.prices.values():
            tool = self.tools.get(price.tool or "")
            if price.tool is not None and tool is None:
                raise Misuse(f"{price.function.where}: there is no tool {price.tool!r}")
            if tool is not None and PRICE in tool.wire.get("_meta", {}):
                raise Misuse(f"{price.function.where}: {price.tool!r} has a price already")

    def arguments_of(self, target: str) -> Sequence[str] | None:
        if target in self.prompts:
            return [field.name for field in self.prompts[target].function.parameters]
        if target in self.resources:
            return self.resources[target].variables
        return None

    def catalog(self) -> dict[str, Any]:
        resources = [resource for resource in self.resources.values() if resource.enabled]
        return {
            "tools": [self._wire(tool) for tool in self.tools.values() if tool.enabled],
            "resources": [resource.wire for resource in resources if not resource.variables],
            "resourceTemplates": [resource.wire for resource in resources if resource.variables],
            "prompts": [prompt.wire for prompt in self.prompts.values() if prompt.enabled],
            "priceFunctions": list(self.prices),
            "completes": [
                *(["prompt", name] for name, prompt in self.prompts.items() if self._completes(name, prompt)),
                *(["resource", uri] for uri, found in self.resources.items() if self._completes(uri, found)),
            ],
        }

    def _wire(self, tool: Tool) -> dict[str, Any]:
        """Return its entry, with the name of the function that knows its price, where there is one."""
        curious = tool.function.asks_who_calls or bool(tool.hooks)
        wire: dict[str, Any] = {**tool.wire, "wantsCaller": True} if curious else tool.wire
        for price in self.prices.values():
            if price.tool == tool.name:
                return {**wire, "_meta": {**wire.get("_meta", {}), PRICE: {"function": price.name}}}
        return wire

    def _completes(self, target: str, offer: Prompt | Resource) -> bool:
        """Return whether there is anything to say about one of its arguments: by a function, or by the choices of its hint."""
        if not offer.enabled:
            return False
        names = self.arguments_of(target) or ()
        return any((target, name) in self.completions for name in names) or any(
            field.name in names and options_of(field.hint) for field in offer.function.parameters
        )

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed()


def _below(uri: str, prefix: str) -> str:
    """Put the prefix as the first step behind the scheme."""
    if not prefix:
        return uri
    scheme, colon, rest = uri.partition("://") if "://" in uri else uri.partition(":")
    return f"{scheme}{colon}{prefix}/{rest}"


# The one of a child process, where threads that the author starts have no context of ours.
ONLY = Registry()
current: ContextVar[Registry] = ContextVar("ostiary_registry", default=ONLY)


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Make the function a tool.

    Its name, and the first paragraph of its docstring, are what a model sees; its type hints are the schema of its arguments,
    and of its answer if that is a dataclass, a TypedDict or the like. With `input_schema=`, the arguments come as that schema
    says: by name, or all in one dict if the function takes a single parameter that is none of them.

    `price="$0.01"` is what a call costs, where the server takes payments and its settings say nothing else. One with
    `enabled=False` is not offered. `structured=True`: an answer of any type is structured, too, with an output schema.
    `page="app.html"` is what hosts draw beside its answer, `for_page=True` a tool that only a page calls.
    `coerce=True`: texts that are a number, a boolean, a list or an object where one of these is wanted are taken for it.

    On 2026-07-28, a tool that asks its caller something is run again from the start with the answers; what it must not do twice
    it puts behind `ctx.checkpoint` and `ctx.resumed`."""

    return _registering("tool", add_tool, function, options)


def resource(uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
    """Let the function return what there is to read at `uri`; `{variables}` in it are its parameters.

    The function returns text, bytes, a value that is sent as JSON, content, or a list of them. `None` and `NotFound`: no such
    thing."""

    if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance] - @resource without an address
        raise Misuse('a resource needs its address: @resource("test://name")')
    return _registering("resource", partial(add_resource, uri), None, options)


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(**options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
def prompt(function: Any = None, /, **options: Any) -> Any:
    """Make the function a prompt: text, content, `user(…)` and `assistant(…)` messages, or a list of them.

    Its parameters are the prompt's arguments. They arrive as text and are converted to their hints."""

    return _registering("prompt", add_prompt, function, options)


def _registering(what: str, add: Callable[..., None], function: Any, options: Mapping[str, Any]) -> Any:
    if isinstance(function, str):
        raise Misuse(f"@{what}({function!r}): the name is given by its word: @{what}(name={function!r})")

    def register(function: Any) -> Any:
        add(function, **options)
        return function

    return register if function is None else register(function)


def completion(target: str, argument: str) -> Callable[[F], F]:
    """Let the function say what an argument of a prompt, or a variable of a template, could be: `f(value, known)`.

    `value` is what was typed so far, `known` the arguments that are settled. At most 100 of its texts are shown."""

    def register(function: F) -> F:
        current.get().add_completion(Completion(target, argument, function))
        return function

    return register


@overload
def price(tool: F, /) -> F: ...
@overload
def price(tool: str, /) -> Callable[[F], F]: ...
def price(tool: Any, /) -> Any:
    """Let the function say what a call of the tool costs: `@price("render")`. Without a name, the settings say of what.

    The function takes those of the call's arguments that it has parameters for, and returns an amount: "$0.02", a whole number
    of dollars, a `Decimal`, or "free". The server asks before anybody pays, and again with the payment, so it only counts."""

    def register(function: Any) -> Any:
        current.get().add_price(Price(function, tool if isinstance(tool, str) else None))
        return function

    return register if isinstance(tool, str) else register(tool)


def add_tool(function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
    """Add a tool as the decorator does, and at any time: clients are told that the list has changed."""
    registry = current.get()
    registry.add_tool(Tool(function, defaults=registry.defaults, **options))


def add_resource(uri: str, function: Callable[..., Any], **options: Unpack[ResourceOptions]) -> None:
    current.get().add_resource(Resource(uri, function, **options))


def add_prompt(function: Callable[..., Any], **options: Unpack[PromptOptions]) -> None:
    current.get().add_prompt(Prompt(function, **options))


def remove_tool(name: str | Callable[..., Any]) -> None:
    registry = current.get()
    registry.remove(registry.tools, _name_of(registry.tools, name), "tool")


def remove_resource(uri: str) -> None:
    registry = current.get()
    registry.remove(registry.resources, uri, "resource")


def remove_prompt(name: str | Callable[..., Any]) -> None:
    registry = current.get()
    registry.remove(registry.prompts, _name_of(registry.prompts, name), "prompt")


def updated(uri: str) -> None:
    """Tell those who watch the resource that it has changed."""
    tell = current.get().updated
    if tell is not None:
        tell(uri)


def _name_of(offers: Mapping[str, Tool | Prompt], name: str | Callable[..., Any]) -> str:
    if isinstance(name, str):
        return name
    return next((key for key, offer in offers.items() if offer.function.call == name), repr(name))
