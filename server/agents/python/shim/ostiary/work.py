"""What a call asks for: which function, with which arguments, and how what it returns is told. One function for each kind of call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Callable, NamedTuple

from . import answers, prices
from .convert import options_of
from .errors import NotFound, Unfit
from .function import Function
from .hooks import Hook
from .registry import Registry

Json = dict[str, Any]
Shape = Callable[[Any], Json]


class Work(NamedTuple):
    function: Function | None  # None: the arguments are the answer already
    arguments: Any
    shape: Shape
    # Of a tool that has hooks around it.
    tool: str = ""
    tags: frozenset[str] = frozenset()
    hooks: Sequence[Hook] = ()


def work_of(registry: Registry, message: Json) -> Work:
    """Raises `NotFound` and `Unfit`."""
    return _KINDS[message["kind"]](registry, message)


def _tool(registry: Registry, message: Json) -> Work:
    name: str = message["name"]
    tool = registry.tools.get(name)
    if tool is None or not tool.enabled:
        raise NotFound(f"there is no tool {name!r} any more")
    arguments = tool.arguments(message.get("arguments") or {})
    return Work(tool.function, arguments, tool.answer, name, tool.tags, tool.hooks or ())


def _read(registry: Registry, message: Json) -> Work:
    uri: str = message["uri"]
    resource = registry.resources.get(message.get("template") or uri)
    if resource is None or not resource.enabled:
        raise NotFound(f"there is no {uri}")
    mime_type = resource.mime_type
    arguments = resource.function.from_texts(message.get("arguments") or {})
    return Work(resource.function, arguments, partial(answers.contents, uri=uri, mime_type=mime_type))


def _prompt(registry: Registry, message: Json) -> Work:
    prompt = registry.prompts.get(message["name"])
    if prompt is None or not prompt.enabled:
        raise NotFound(f"there is no prompt {message['name']!r} any more")
    description = prompt.description
    arguments = prompt.function.from_texts(message.get("arguments") or {})
    return Work(prompt.function, arguments, partial(answers.prompt, description=description))


def _complete(registry: Registry, message: Json) -> Work:
    name, argument, value = (message[word] for word in ("name", "argument", "value"))
    completion = registry.completions.get((name, argument))
    if completion is not None:
        arguments = completion.arguments(value, message.get("known") or {})
        return Work(completion.function, arguments, answers.completion)
    names = registry.arguments_of(name)
    if names is None or argument not in names:
        raise Unfit("unknown", argument)
    offer = registry.prompts.get(name) or registry.resources[name]
    hint = next((field.hint for field in offer.function.parameters if field.name == argument), Any)
    return Work(None, [text for _, text in options_of(hint) if text.startswith(value)], answers.completion)


def _price(registry: Registry, message: Json) -> Work:
    price = registry.prices.get(message["name"])
    if price is None:
        raise NotFound(f"there is no price function {message['name']!r} any more")
    tool = registry.tools.get(message.get("tool") or "")
    usual = {} if tool is None else tool.function.defaults()
    return Work(price.function, price.arguments(message.get("arguments") or {}, usual), prices.said)


_KINDS: Mapping[str, Callable[[Registry, Json], Work]] = {
    "tool": _tool,
    "read": _read,
    "prompt": _prompt,
    "complete": _complete,
    "price": _price,
}
