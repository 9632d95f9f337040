"""Offers: what one call of a tool costs a kind of caller, before plans. Known beforehand, or worked out from the call's arguments, here or
by the agent's own function; where that fails there is no price, and so no call.

How prices are read from the settings is tool_prices.py's; what a plan makes of an offer, plans.py's."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import trio

from auth.values.identity_model import PrincipalKind
from server.lib.money.amounts import MOST, BadAmount, Micros, parse, shown
from server.settings.money_settings import FREE, PLAN_ONLY, PriceValue

if TYPE_CHECKING:
    from server.lib.money.expressions import Expression

CURRENCY: Final = "USD"
# A caller waits for it twice: when it is told the price, and when it has paid.
PRICE_SECONDS: Final = 5.0
_VERSION_CHARACTERS: Final = 12

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

# Asks the agent's function of that name about these arguments; what it says, "$0.02" or "free". Raises `PriceUnknown`.
AskAgent: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[str]]


class PriceUnknown(Exception):
    """A price that nobody can say, so the call is not run; the text is for the caller."""


class NoPriceForArguments(PriceUnknown):
    """A price that there is none of, nor would be another time: other arguments are what it takes."""


class SaleTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms on which a tool is sold, whatever it costs."""

    server: str
    tool: str
    upfront: bool = False
    dedupe_seconds: int = 0  # a call that was answered stands for the same call for so long
    free_calls: int = 0  # a month, for each wallet
    trial: int = 0  # that succeed, ever


class Offer(SaleTerms, frozen=True, kw_only=True):
    """The price of one call for this kind of caller, before plans."""

    amount: Micros
    version: str  # of the price: another text or amount has another
    plan_only: bool = False  # it cannot be bought: the amount is 0 and means nothing
    asset: str = ""  # the only one that it may be paid with directly: a symbol or an address, in lower case

    @property
    def name(self) -> str:
        """The name that plans, meters and accounts have for it."""
        return f"{self.server}/{self.tool}"

    @property
    def words(self) -> str:
        return shown(self.amount, CURRENCY)


class ToolPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A price as it is written, understood: a fixed amount, or a way to find one."""

    written: PriceValue
    amount: Micros | None = None
    expression: Any = None  # an `Expression`
    function: str = ""
    most: Micros = MOST
    asset: str = ""

    @property
    def plan_only(self) -> bool:
        return self.written == PLAN_ONLY


class PricedTool(SaleTerms, frozen=True, kw_only=True):
    """A tool that costs something, at least for some callers."""

    prices: Mapping[str, ToolPrice | None]  # by kind of caller; None: free
    fixed: Mapping[str, Offer]
    authored: frozenset[str] = frozenset()  # the kinds of caller whose price is that of the tool's author

    def as_agent_says(self, kind: PrincipalKind) -> bool:
        """Return whether what such callers pay follows from what its agent says."""
        word = KIND_OF[kind]
        price = self.prices[word]
        return price is not None and (word in self.authored or price.function != "")

    def sold_to(self, kind: PrincipalKind) -> bool:
        """Return whether such callers can pay for a call of it, and have to."""
        price = self.prices[KIND_OF[kind]]
        return price is not None and not price.plan_only

    def static(self, kind: PrincipalKind) -> Offer | None:
        """Return the offer of every call. None: it is free for such callers, or depends on the arguments (`depends`)."""
        return self.fixed.get(KIND_OF[kind])

    def depends(self, kind: PrincipalKind) -> bool:
        """Return whether its price can only be said of a call."""
        word = KIND_OF[kind]
        return word not in self.fixed and self.prices[word] is not None

    async def offer(
        self, kind: PrincipalKind, arguments: Mapping[str, Any], ask_agent: AskAgent
    ) -> Offer | None:
        """Return the offer of a call. None: this call costs nothing. Raises `PriceUnknown`."""
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
            from server.lib.money.expressions import NoPrice

            try:
                amount = cast("Expression", price.expression).price(arguments)
            except NoPrice as problem:
                raise NoPriceForArguments(f"what {self.tool} costs cannot be worked out: {problem}") from None
        if amount > price.most:
            raise NoPriceForArguments(
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
        text = msgspec.json.encode([self.server, self.tool, price.written, amount])
        terms: dict[str, Any] = {name: getattr(self, name) for name in SaleTerms.__struct_fields__}
        return Offer(
            **terms,
            amount=amount,
            version=hashlib.sha256(text).hexdigest()[:_VERSION_CHARACTERS],
            plan_only=price.plan_only,
            asset=price.asset,
        )
