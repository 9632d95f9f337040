"""Prices of the tools of a server: the settings' word, then that of a tool's author, made into offers for each kind of caller.

Made when the catalogue is, and kept with the tool's entry: of a tool that is free nothing is asked at a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import UNSET

from server.lib.money.amounts import MOST, BadAmount, from_atomic, parse, parse_atomic
from server.mcp.messages import Tool, ToolAnnotations
from server.mcp.terms import PRICE_META, BadTerms
from server.payments.seller.offers import KIND_OF, PricedTool, ToolPrice
from server.payments.seller.price_tags import price_meta
from server.settings.money_settings import FREE, PLAN_ONLY, PaymentsConfig, PriceTable, PriceValue, seconds_of
from server.settings.policy_settings import ToolConfig
from server.settings.setting_shapes import ServerConfig

if TYPE_CHECKING:
    from server.lib.money.expressions import Expression
    from server.settings.sale_settings import AcceptedAsset

_PLAIN: Final = ToolConfig()


def _unsayable(price: ToolPrice, tool: Tool, functions: Set[str]) -> str | None:
    """Return why nobody could ever say it."""
    if price.function:
        return (
            None
            if price.function in functions
            else f"is a function {price.function}, which its agent does not have"
        )
    known = tool.input_schema.get("properties")
    if price.expression is None or not isinstance(known, Mapping) or not known:
        return None
    strange = sorted(cast("Expression", price.expression).names - set(cast("Mapping[str, object]", known)))
    return f"looks at {', '.join(strange)}, which it does not take" if strange else None


_ASKS_PAYMENT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "type": "object",
        "description": "What is to be paid for the call (x402)",
        "required": ["x402Version", "accepts"],
        "properties": {"x402Version": {"const": 2}, "accepts": {"type": "array"}},
    }
)


class Prices:
    """The prices of one server. `payments` None: what authors say is not heard, and what the settings say cannot be paid."""

    def __init__(self, settings: ServerConfig, payments: PaymentsConfig | None = None) -> None:
        self._server = settings.name
        self._default = settings.price
        self._tools = settings.tools
        self._payments = payments
        self._read: dict[bytes, ToolPrice | None] = {}

    def price(self, tool: Tool, functions: Set[str]) -> PricedTool | None:
        """Return what a tool costs; None: nothing, for anybody. `functions`: those of its agent that know what a call costs. Raises
        `BadTerms` for a price of its author's that is none, and for one that could not be said of any call."""
        own = self._tools.get(tool.name, _PLAIN)
        written = own.price if own.price is not None else self._default
        authored = written is None
        if written is None:
            written = self._authors(tool)
        prices = {
            kind: self._understood(own.price_for.get(kind, FREE if written is None else written))
            for kind in KIND_OF.values()
        }
        if not any(prices.values()):
            return None
        for price in prices.values():
            if price is not None and (problem := _unsayable(price, tool, functions)):
                raise BadTerms(f"the tool {tool.name}: its price {problem}")
        return self._priced(
            tool.name, own, prices, frozenset(prices.keys() - own.price_for.keys() if authored else ())
        )

    def shown(self, tool: Tool, price: PricedTool) -> Tool:
        """Show what a tool costs in its `_meta`, whoever said so. A repeat of a paid call is paid for again, so it never claims that one
        is without effect."""
        meta = {} if tool.meta is UNSET else dict(tool.meta)
        hints = ToolAnnotations() if tool.annotations is UNSET else tool.annotations
        return msgspec.structs.replace(
            tool,
            output_schema=UNSET if tool.output_schema is UNSET else _or_payment(tool.output_schema),
            meta=meta | price_meta(price, self._networks()),
            annotations=msgspec.structs.replace(hints, idempotent_hint=False),
        )

    def _priced(
        self, name: str, own: ToolConfig, prices: Mapping[str, ToolPrice | None], authored: frozenset[str]
    ) -> PricedTool:
        priced = PricedTool(
            server=self._server,
            tool=name,
            prices=prices,
            fixed={},
            upfront=own.flow == "upfront",
            dedupe_seconds=seconds_of(own.dedupe),
            free_calls=own.free_calls,
            trial=own.trial,
            authored=authored,
        )
        fixed = {
            kind: priced.make(price, price.amount)
            for kind, price in prices.items()
            if price is not None and price.amount is not None
        }
        return msgspec.structs.replace(priced, fixed=fixed)

    def _authors(self, tool: Tool) -> PriceValue | None:
        written = None if self._payments is None or tool.meta is UNSET else tool.meta.get(PRICE_META)
        if written is None:
            return None
        try:
            value = msgspec.convert(written, PriceValue)
            if isinstance(value, PriceTable) and not (
                value.function and value == PriceTable(function=value.function)
            ):
                raise BadAmount("is a table that only the settings may have")
            if isinstance(value, str) and value != FREE and parse(value) == 0:
                raise BadAmount('is nothing: write "free"')
        except (msgspec.ValidationError, BadAmount) as problem:
            raise BadTerms(f"the tool {tool.name}: its price ({PRICE_META}) {problem}") from None
        return value

    def _understood(self, written: PriceValue) -> ToolPrice | None:
        key = msgspec.json.encode(written)
        if key not in self._read:
            self._read[key] = self._make(written)
        return self._read[key]

    def _make(self, written: PriceValue) -> ToolPrice | None:
        if isinstance(written, str):
            if written == FREE:
                return None
            return ToolPrice(written=written, amount=0 if written == PLAN_ONLY else parse(written))
        most = parse(written.most) if written.most else MOST
        if written.function:
            return ToolPrice(written=written, function=written.function, most=most)
        if written.expression:
            from server.lib.money.expressions import Expression

            return ToolPrice(written=written, expression=Expression(written.expression), most=most)
        asset = written.asset.lower()
        amount = from_atomic(parse_atomic(written.amount), self._decimals(asset))
        return ToolPrice(written=written, amount=amount, asset=asset)

    def _accepted(self) -> Sequence[AcceptedAsset]:
        if self._payments is None:
            return ()
        from server.settings.sale_settings import accepted_assets

        return accepted_assets(self._payments)

    def _networks(self) -> list[str]:
        return list(dict.fromkeys(each.network.caip2 for each in self._accepted()))

    def _decimals(self, asset: str) -> int:
        found = (each.asset for each in self._accepted())
        named = (each for each in found if asset in (each.symbol.lower(), each.address.lower()))
        return next((each.decimals for each in named), 6)


def _or_payment(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let what asks for payment be one of two things that may come: some clients hold it against the output schema as well, and would show
    their user a broken tool in place of its price."""
    kind = {"type": "object"} if schema.get("type") == "object" else {}
    definitions = {name: schema[name] for name in ("$schema", "$defs", "definitions") if name in schema}
    answer = {name: value for name, value in schema.items() if name not in definitions}
    return {**definitions, **kind, "anyOf": [answer, dict(_ASKS_PAYMENT)]}
