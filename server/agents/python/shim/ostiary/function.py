"""An author's function: what it takes, which parameter is the context, and in which way it runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, Callable

from .convert import convert, from_text
from .errors import Misuse, Unfit
from .foreign import default_of, is_field
from .hints import MISSING, Field, alternatives, hints_of, own, strip
from .param import Param
from .provide import Provide

CONTEXT_NAMES = ("ctx", "context")
_Kind = inspect.Parameter


class Contextual:
    """The mark of the classes that a parameter can ask for as its context."""


class Function:
    """Raises `Misuse` at a function whose parameters nobody could fill."""

    def __init__(self, call: Callable[..., Any], what: str) -> None:
        if not callable(call):
            raise Misuse(f"{what}: this is no function")
        if inspect.isclass(call):
            raise Misuse(f"{what}: this is a class; decorate a function")
        self.call = call
        own_call = own(call)
        self.name: str = getattr(own_call, "__name__", type(call).__name__)
        if self.name == "__call__":
            self.name = type(call).__name__
        self.where = f"{what} {self.name}()"
        self.module: str = getattr(own_call, "__module__", None) or ""
        if _is_method(call):
            raise Misuse(
                f"{self.where}: this is a method, and there is no object to call it on: decorate a function, or write "
                "add_tool(thing.method) once there is a thing (also add_resource, add_prompt)"
            )
        self.doc: str | None = inspect.getdoc(own_call) if own_call is call else _doc_of(call, own_call)
        # A decorator that wraps an async function in a plain one hands back its coroutine.
        inner = inspect.unwrap(own_call)
        self.is_async_generator = any(map(inspect.isasyncgenfunction, (own_call, inner)))
        self.is_async = self.is_async_generator or any(map(inspect.iscoroutinefunction, (own_call, inner)))
        self.is_generator = any(map(inspect.isgeneratorfunction, (own_call, inner)))
        hints = hints_of(own_call, self.where)
        self.returns: Any = hints.get("return", Any)
        self.context: str | None = None
        # What the file fills itself: by parameter, the source and how it is called.
        self.provided: dict[str, tuple[Callable[..., Any], Function]] = {}
        self.takes_any = False  # **kwargs
        # Defaults that stand in a pydantic `Field(…)`, where the function would get that instead of them.
        self._defaults: dict[str, Callable[[], Any]] = {}
        self.parameters: list[Field] = []
        for parameter in inspect.signature(call).parameters.values():
            self._add(parameter, hints.get(parameter.name, MISSING))

    def _add(self, parameter: inspect.Parameter, hint: Any) -> None:
        name = parameter.name
        if parameter.kind is _Kind.VAR_KEYWORD:
            self.takes_any = True
            return
        if _is_context(name, hint):
            if self.context is not None:
                raise Misuse(f"{self.where}: {self.context!r} and {name!r} are both the context")
            self.context = name
            return
        if parameter.kind in (_Kind.VAR_POSITIONAL, _Kind.POSITIONAL_ONLY):
            raise Misuse(f"{self.where}: arguments come by name, so *args and / cannot be used ({name!r})")
        if isinstance(parameter.default, Provide):
            raise Misuse(f"{self.where}: write {name}: Annotated[…, Provide(…)], without a default")
        provide = _provide_of(hint)
        if provide is not None:
            self.provided[name] = (provide.source, self._provider(name, provide))
            return
        if isinstance(parameter.default, Param):
            raise Misuse(f"{self.where}: write {name}: Annotated[…, Param(…)], and the default after it")
        required = parameter.default is _Kind.empty
        default = MISSING if required else parameter.default
        hint = Any if hint is MISSING else hint
        if is_field(default):
            hint, make = Annotated[hint, default], default_of(default)
            required = make is None
            default = MISSING if make is None else make()
            if make is not None:
                self._defaults[name] = make
        self.parameters.append(Field(name, hint, required, default))

    def _provider(self, name: str, provide: Provide) -> Function:
        found = Function(provide.source, f"{self.where}, {name!r} is provided by")
        needed = [field.name for field in found.parameters if field.required]
        if needed:
            raise Misuse(
                f"{found.where}: nobody fills {', '.join(needed)}; it may take a context, and what is provided"
            )
        return found

    def sources(self) -> set[Callable[..., Any]]:
        """All that fills it, by however many steps."""
        found: set[Callable[..., Any]] = set()
        for source, provider in self.provided.values():
            found |= {source, *provider.sources()}
        return found

    @property
    def asks_who_calls(self) -> bool:
        return self.context is not None or any(each.asks_who_calls for _, each in self.provided.values())

    def from_json(self, arguments: Mapping[str, Any], *, strict: bool = True) -> dict[str, Any]:
        """The arguments as the hints promise them. Raises `Unfit`. Not strict: what the function does not take is left
        out."""
        return self._made(arguments, convert, strict)

    def defaults(self) -> dict[str, Any]:
        """Of the parameters that have one."""
        return {field.name: field.default for field in self.parameters if field.default is not MISSING}

    def from_texts(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        return self._made(arguments, from_text, True)

    def _made(
        self, arguments: Mapping[str, Any], make: Callable[[Any, Any], Any], strict: bool
    ) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field in self.parameters:
            if field.name in arguments:
                try:
                    made[field.name] = make(arguments[field.name], field.hint)
                except Unfit as error:
                    raise error.below(field.name) from error
            elif field.required:
                raise Unfit("missing", field.name)
            elif field.name in self._defaults:
                made[field.name] = self._defaults[field.name]()
        for name, value in arguments.items():
            if name in made:
                continue
            if self.takes_any and name != self.context and name not in self.provided:
                made[name] = value
            elif strict:
                raise Unfit("unknown", name)
        return made


def _is_method(call: Any) -> bool:
    """One that was taken from its class, not from an object: nobody could give it its `self`."""
    around = call.__qualname__.rpartition(".")[0] if inspect.isfunction(call) else ""
    if not around or around.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(call).parameters), None) in ("self", "cls")


def _doc_of(call: Any, own_call: Any) -> str | None:
    """Of a partial: its function's. Of an object: its call's, else its class's."""
    if inspect.getdoc(own_call) and inspect.isfunction(own_call) and own_call.__name__ != "__call__":
        return inspect.getdoc(own_call)
    return own_call.__doc__ or type(call).__doc__


def _provide_of(hint: Any) -> Provide | None:
    notes = () if hint is MISSING else strip(hint)[1]
    return next((note for note in notes if isinstance(note, Provide)), None)


def _is_context(name: str, hint: Any) -> bool:
    """By its hint; by its name where it has none, so that `context: str` is an argument like others."""
    if hint is MISSING:
        return name in CONTEXT_NAMES
    return any(
        isinstance(bare, type) and issubclass(bare, Contextual)
        for bare in (strip(member)[0] for member in alternatives(hint))
    )
