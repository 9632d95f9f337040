"""What a call costs before plans: the settings' word, then that of the tool's author, made into one value for each kind of caller.

Made when the catalogue is, and kept with the tool's entry: of a tool that is free nothing is asked at a call. A price that depends on the
arguments is worked out for each call, here or by the agent's own function; where that fails there is no price, and so no call.
What a plan makes of an offer is plans.py's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import msgspec
import trio
from msgspec import UNSET

from auth.values.model import PrincipalKind
from server.backends.terms import BadTerms
from server.mcp.messages import Tool, ToolAnnotations
from server.money.amounts import MOST, BadAmount, Micros, from_atomic, parse, parse_atomic, shown
from server.settings.money import FREE, PLAN_ONLY, Flow, PaymentsConfig, PriceTable, PriceValue, seconds_of
from server.settings.policies import ToolConfig

if TYPE_CHECKING:
    from server.money.expressions import Expression

# Where the author of a tool says what it costs, and where callers read it.
PRICE_META: Final = "io.ostiary/price"
CURRENCY: Final = "USD"
# A caller waits for it twice: when it is told the price, and when it has paid.
PRICE_SECONDS: Final = 5.0
_VERSION_CHARACTERS: Final = 12
_PLAIN: Final = ToolConfig()

KIND_OF: Final[Mapping[PrincipalKind, str]] = MappingProxyType(
    {
        PrincipalKind.USER: "user",
        PrincipalKind.LOCAL: "user",
        PrincipalKind.CLIENT: "client",
        PrincipalKind.API_KEY: "api_key",
        PrincipalKind.PAYER: "payer",
        PrincipalKind.ANONYMOUS: "payer",
    }
)

# Asks the agent's function of that name about these arguments; what it says, "$0.02" or "free". Raises what a call raises.
AskAgent: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[str]]


class PriceUnknown(Exception):
    """Nobody can say what the call costs, so it is not run; the text is for the caller."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What one call costs this kind of caller, before plans."""

    server: str
    tool: str
    amount: Micros
    version: str  # of the price: another text or amount has another
    upfront: bool = False
    dedupe_seconds: int = 0  # a call that was answered stands for the same call for so long
    free_calls: int = 0  # a month, for each wallet
    trial: int = 0  # that succeed, ever
    plan_only: bool = False  # it cannot be bought: the amount is 0 and means nothing
    asset: str = ""  # the only one that it may be paid with directly: a symbol or an address, in lower case

    @property
    def name(self) -> str:
        """As plans, meters and accounts name it."""
        return f"{self.server}/{self.tool}"

    @property
    def words(self) -> str:
        return shown(self.amount, CURRENCY)


class ToolPrice(msgspec.Struct, frozen=True, kw_only=True):
    """As it is written, understood: a fixed amount, or a way to find one."""

    written: PriceValue
    amount: Micros | None = None
    expression: Any = None  # an `Expression`
    function: str = ""
    most: Micros = MOST
    asset: str = ""

    @property
    def plan_only(self) -> bool:
        return self.written == PLAN_ONLY


class PricedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that costs something, at least for some callers."""

    server: str
    tool: str
    prices: Mapping[str, ToolPrice | None]  # by kind of caller; None: free
    fixed: Mapping[str, Offer]
    upfront: bool
    dedupe_seconds: int
    free_calls: int
    trial: int

    def static(self, kind: PrincipalKind) -> Offer | None:
        """None: it is free for such callers, or depends on the arguments (`depends`)."""
        return self.fixed.get(KIND_OF[kind])

    def depends(self, kind: PrincipalKind) -> bool:
        """Whether its price can only be said of a call."""
        word = KIND_OF[kind]
        return word not in self.fixed and self.prices[word] is not None

    async def offer(
        self, kind: PrincipalKind, arguments: Mapping[str, Any], ask_agent: AskAgent
    ) -> Offer | None:
        """None: this call costs nothing. Raises `PriceUnknown`."""
        word = KIND_OF[kind]
        if (ready := self.fixed.get(word)) is not None:
            return ready
        price = self.prices[word]
        if price is None:
            return None
        amount = await self._find(price, arguments, ask_agent)
        return self.make(price, amount) if amount else None

    async def _find(self, price: ToolPrice, arguments: Mapping[str, Any], ask_agent: AskAgent) -> Micros:
        if price.function:
            amount = await self._asked(price.function, arguments, ask_agent)
        else:
            from server.money.expressions import NoPrice

            try:
                amount = cast("Expression", price.expression).price(arguments)
            except NoPrice as problem:
                raise PriceUnknown(f"what {self.tool} costs cannot be worked out: {problem}") from None
        if amount > price.most:
            raise PriceUnknown(
                f"this call of {self.tool} would cost {shown(amount)}, and it never costs more than {shown(price.most)}"
            )
        return amount

    async def _asked(self, function: str, arguments: Mapping[str, Any], ask_agent: AskAgent) -> Micros:
        said = None
        with trio.move_on_after(PRICE_SECONDS):
            said = await ask_agent(function, arguments)
        if said is None:
            raise PriceUnknown(f"the agent did not say in time what this call of {self.tool} costs")
        try:
            return 0 if said == FREE else parse(said)
        except BadAmount:
            raise PriceUnknown(
                f"the agent said of no amount that this call of {self.tool} costs it"
            ) from None

    def make(self, price: ToolPrice, amount: Micros) -> Offer:
        return Offer(
            server=self.server,
            tool=self.tool,
            amount=amount,
            version=_version(self.server, self.tool, price.written, amount),
            upfront=self.upfront,
            dedupe_seconds=self.dedupe_seconds,
            free_calls=self.free_calls,
            trial=self.trial,
            plan_only=price.plan_only,
            asset=price.asset,
        )


class PriceSettings(Protocol):
    """What is looked at of a `ServerConfig`."""

    @property
    def name(self) -> str: ...
    @property
    def price(self) -> PriceValue | None: ...
    @property
    def tools(self) -> Mapping[str, ToolConfig]: ...


class Prices:
    """Of one server. `payments` None: what authors say is not heard, and what the settings say cannot be paid."""

    def __init__(self, settings: PriceSettings, payments: PaymentsConfig | None = None) -> None:
        self._server = settings.name
        self._default = settings.price
        self._tools = settings.tools
        self._payments = payments
        self._read: dict[bytes, ToolPrice | None] = {}

    def price(self, tool: Tool) -> PricedTool | None:
        """None: it costs nobody anything. Raises `BadTerms` for a price of its author's that is none."""
        own = self._tools.get(tool.name, _PLAIN)
        written = own.price if own.price is not None else self._default
        if written is None:
            written = self._authors(tool)
        if (written is None or written == FREE) and not own.price_for:
            return None
        prices = {
            kind: self._understood(own.price_for.get(kind, FREE if written is None else written))
            for kind in KIND_OF.values()
        }
        if not any(prices.values()):
            return None
        return self._priced(tool.name, own, prices)

    def shown(self, tool: Tool, price: PricedTool) -> Tool:
        """What it costs is in its `_meta`, whoever said so. A repeat of a paid call is paid for again, so it never claims that
        one is without effect."""
        from server.till.price_tags import price_meta

        meta = {} if tool.meta is UNSET else dict(tool.meta)
        hints = ToolAnnotations() if tool.annotations is UNSET else tool.annotations
        return msgspec.structs.replace(
            tool,
            meta=meta | price_meta(price, self._networks()),
            annotations=msgspec.structs.replace(hints, idempotent_hint=False),
        )

    def unheard(self, tool: Tool) -> bool:
        """Whether its author says what it costs, and nobody could pay that."""
        return self._payments is None and tool.meta is not UNSET and PRICE_META in tool.meta

    def _priced(self, name: str, own: ToolConfig, prices: Mapping[str, ToolPrice | None]) -> PricedTool:
        priced = PricedTool(
            server=self._server,
            tool=name,
            prices=prices,
            fixed={},
            upfront=own.flow == _UPFRONT,
            dedupe_seconds=seconds_of(own.dedupe),
            free_calls=own.free_calls,
            trial=own.trial,
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
            from server.money.expressions import Expression

            return ToolPrice(written=written, expression=Expression(written.expression), most=most)
        asset = written.asset.lower()
        amount = from_atomic(parse_atomic(written.amount), self._decimals(asset))
        return ToolPrice(written=written, amount=amount, asset=asset)

    def _networks(self) -> list[str]:
        if self._payments is None:
            return []
        from server.settings.sales import accepted_assets

        return list(dict.fromkeys(each.network.caip2 for each in accepted_assets(self._payments)))

    def _decimals(self, asset: str) -> int:
        from server.settings.sales import accepted_assets

        found = accepted_assets(self._payments) if self._payments is not None else ()
        return next(
            (
                each.asset.decimals
                for each in found
                if asset in (each.asset.symbol.lower(), each.asset.address.lower())
            ),
            6,
        )


_UPFRONT: Final[Flow] = "upfront"


def _version(server: str, tool: str, written: PriceValue, amount: Micros) -> str:
    text = msgspec.json.encode([server, tool, written, amount])
    return hashlib.sha256(text).hexdigest()[:_VERSION_CHARACTERS]
