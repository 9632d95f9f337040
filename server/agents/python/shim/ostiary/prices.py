"""What a call costs, where its author says so: a fixed amount with the tool, or a function of the arguments.

An amount is exact, and so never a float: a text like "$0.02", a whole number of dollars, a `Decimal`, or "free". Whether anybody is
charged, the settings of the server decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Callable

from .errors import Misuse
from .function import Function
from .hints import loaded
from .plain import plain

# Where the server looks for it.
PRICE = "io.ostiary/price"
FREE = "free"

_AMOUNT = re.compile(r"\$?(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,6})?")


class Price:
    """A function of the arguments that says what a call of a tool costs. Without a tool, the settings name it."""

    def __init__(self, function: Callable[..., Any], tool: str | None = None) -> None:
        self.function = Function(function, "the price")
        self.name = self.function.name
        self.tool = tool
        if self.function.is_async_generator or self.function.is_generator:
            raise Misuse(f"{self.function.where}: it says one amount, so it is no generator")

    def arguments(self, arguments: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the call that the function takes; what the caller left out is as the tool has it (`usual`). Raises `Unfit`."""
        taken = {field.name for field in self.function.parameters}
        left_out = {name: plain(value) for name, value in usual.items() if name in taken}
        return self.function.from_json({**left_out, **arguments}, strict=False)


def fixed(price: Any, where: str) -> str:
    """As it is written with a tool. Raises `Misuse`."""
    try:
        return amount(price)
    except TypeError as error:
        raise Misuse(f"{where}: price={price!r}: {error}") from error


def amount(value: Any) -> str:
    """Raises `TypeError`."""
    if isinstance(value, str):
        text = value.strip()
        if text == FREE or _AMOUNT.fullmatch(text):
            return text
        raise TypeError(
            'a price is written like "$0.02", with at most six digits behind the point, or "free"'
        )
    if isinstance(value, float):
        raise TypeError('a float is not the number that is written: say "$0.02", or Decimal("0.02")')
    if isinstance(value, int) and not isinstance(value, bool):
        text = str(value)
    elif isinstance(value, loaded("decimal", "Decimal") or ()):
        text = f"{value:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        raise TypeError(f"{type(value).__name__} is no price")
    if _AMOUNT.fullmatch(text) is None:
        raise TypeError(
            f"{text[:40]} is no price: it is not below zero, and has at most six digits behind the point"
        )
    return text


def said(value: Any) -> dict[str, Any]:
    """What a function said, on the wire."""
    return {"price": amount(value)}
