"""What a call costs: whose word counts, what depends on the arguments, and what is shown of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio
from msgspec import UNSET
from till_fakes import FUNCTIONS, PAYMENTS, TOKEN, WITH_TOKEN, Mute, a_tool, priced, prices
from trio.testing import MockClock

from auth.values.identity_model import PrincipalKind
from server.agents.base.catalog import Catalog, CatalogError, Source
from server.mcp.messages import Tool, ToolAnnotations
from server.mcp.terms import PRICE_META, BadTerms
from server.payments.seller.offers import (
    KIND_OF,
    PRICE_SECONDS,
    NoPriceForArguments,
    PricedTool,
    PriceUnknown,
)
from server.payments.seller.price_tags import words_of, words_of_prices
from server.settings.money_settings import PriceTable
from server.settings.policy_settings import ToolConfig

USER, PAYER = PrincipalKind.USER, PrincipalKind.PAYER
COMPUTED = PriceTable(expression="0.01 + 0.002 * len(text)", most="$0.05")


async def nobody(function: str, arguments: Mapping[str, Any]) -> str:
    raise AssertionError(f"nobody was to be asked for {function}")


def amount(found: PricedTool | None, kind: PrincipalKind = USER) -> int | None:
    offer = None if found is None else found.static(kind)
    return None if offer is None else offer.amount


# ── whose word counts ────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_word_of_it_nothing_costs_anything() -> None:
    assert prices().price(a_tool(), frozenset()) is None


def test_every_kind_of_caller_has_a_price() -> None:
    assert KIND_OF.keys() == set(PrincipalKind)


def test_the_tools_own_price_counts_before_the_servers_and_both_before_the_authors() -> None:
    written = a_tool(meta={PRICE_META: "$0.03"})
    assert amount(prices().price(written, frozenset())) == 30_000
    assert amount(prices("$0.02").price(written, frozenset())) == 20_000
    assert (
        amount(prices("$0.02", {"search": ToolConfig(price="$0.01")}).price(written, frozenset())) == 10_000
    )
    assert prices("$0.02", {"search": ToolConfig(price="free")}).price(written, frozenset()) is None
    assert prices("free").price(written, frozenset()) is None


def test_what_an_author_says_is_heard_only_where_payments_are_taken() -> None:
    written = a_tool(meta={PRICE_META: "$0.03"})
    assert prices(payments=None).price(written, frozenset()) is None
    assert amount(prices("$0.02", payments=None).price(written, frozenset())) == 20_000


@pytest.mark.parametrize(
    "written", ["0.0000001", "$0", 0.01, 1, [], {"expression": "1"}, {"function": "f", "most": "$1"}, {}]
)
def test_what_an_author_calls_a_price_and_is_none_is_no_offer(written: object) -> None:
    with pytest.raises(BadTerms, match="the tool search"):
        prices().price(a_tool(meta={PRICE_META: written}), frozenset())


def test_callers_of_one_kind_can_pay_another_price_or_nothing() -> None:
    found = priced(price="$0.01", price_for={"payer": "$0.02", "api_key": "free"})
    assert [amount(found, kind) for kind in (USER, PrincipalKind.CLIENT, PAYER, PrincipalKind.API_KEY)] == [
        10_000,
        10_000,
        20_000,
        None,
    ]
    only_strangers = priced(price_for={"payer": "$0.02"})
    assert (amount(only_strangers), amount(only_strangers, PAYER)) == (None, 20_000)
    assert not only_strangers.depends(USER)


def test_an_atomic_price_is_the_same_in_dollars_and_names_its_asset() -> None:
    table = PriceTable(asset=TOKEN, amount="20000000000000000")
    offer = priced(WITH_TOKEN, price=table).static(USER)
    assert offer is not None and (offer.amount, offer.asset) == (20_000, TOKEN)
    plain = priced(price=PriceTable(asset="USDC", amount="10000")).static(USER)
    assert plain is not None and (plain.amount, plain.asset) == (10_000, "usdc")


def test_an_offer_says_the_rules_of_its_tool() -> None:
    offer = priced(price="$0.01", flow="upfront", dedupe="2m", free_calls=5, trial=2).static(USER)
    assert offer is not None
    assert (offer.upfront, offer.dedupe_seconds, offer.free_calls, offer.trial) == (True, 120, 5, 2)
    assert (offer.name, offer.words, offer.plan_only) == ("main/search", "$0.01", False)
    reserved = priced(price="plan").static(USER)
    assert reserved is not None and reserved.plan_only and reserved.amount == 0


def test_a_price_has_a_version_that_changes_with_it_and_with_nothing_else() -> None:
    def version(**tool: Any) -> str:
        offer = priced(**tool).static(USER)
        assert offer is not None
        return offer.version

    assert version(price="$0.01") == version(price="$0.01", trial=3)
    assert len({version(price="$0.01"), version(price="$0.02"), version(price="$0.010")}) == 3


@pytest.mark.parametrize(
    ("price", "sold"), [("free", False), ("plan", False), ("$0.01", True), (COMPUTED, True)]
)
def test_a_call_is_sold_to_those_who_pay_for_it_by_itself(price: Any, sold: bool) -> None:
    found = priced(price="$0.02", price_for={"payer": price})
    assert (found.sold_to(PAYER), found.sold_to(USER)) == (sold, True)


# ── prices that depend ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_expression_is_worked_out_for_each_call() -> None:
    found = priced(price=COMPUTED)
    assert found.static(USER) is None and found.depends(USER)
    short = await found.offer(USER, {"text": "ab"}, nobody)
    long = await found.offer(USER, {"text": "abcd"}, nobody)
    assert short is not None and long is not None
    assert (short.amount, long.amount) == (14_000, 18_000)
    assert short.version != long.version
    assert await found.offer(USER, {"text": "ab"}, nobody) == short


async def test_a_price_that_comes_out_as_nothing_is_none_and_one_beyond_its_bound_is_refused() -> None:
    assert await priced(price=PriceTable(expression="0.01 * n")).offer(USER, {"n": 0}, nobody) is None
    with pytest.raises(
        NoPriceForArguments, match=r"would cost \$0\.06, and it never costs more than \$0\.05"
    ):
        await priced(price=COMPUTED).offer(USER, {"text": "a" * 25}, nobody)
    most = await priced(price=COMPUTED).offer(USER, {"text": "a" * 20}, nobody)
    assert most is not None and most.amount == 50_000
    with pytest.raises(
        NoPriceForArguments, match="what search costs cannot be worked out: the price depends on text"
    ):
        await priced(price=COMPUTED).offer(USER, {}, nobody)


@pytest.mark.parametrize(
    ("said", "expected"), [("$0.02", 20_000), ("1", 1_000_000), ("free", None), ("$0.00", None)]
)
async def test_the_agents_function_is_asked(said: str, expected: int | None) -> None:
    asked: list[tuple[str, Mapping[str, Any]]] = []

    async def ask(function: str, arguments: Mapping[str, Any]) -> str:
        asked.append((function, arguments))
        return said

    offer = await priced(price=PriceTable(function="cost")).offer(USER, {"n": 1}, ask)
    assert (None if offer is None else offer.amount) == expected
    assert asked == [("cost", {"n": 1})]


@pytest.mark.parametrize("said", ["-1", "0.0000001", "much", "1e3", ""])
async def test_what_the_agent_says_and_is_no_amount_refuses_the_call(said: str) -> None:
    async def ask(function: str, arguments: Mapping[str, Any]) -> str:
        return said

    with pytest.raises(PriceUnknown, match="said of no amount"):
        await priced(price=PriceTable(function="cost")).offer(USER, {}, ask)


async def test_an_agent_that_is_late_refuses_the_call(autojump_clock: MockClock) -> None:
    async def ask(function: str, arguments: Mapping[str, Any]) -> str:
        await trio.sleep(PRICE_SECONDS + 1)
        return "$0.01"

    with pytest.raises(PriceUnknown, match="did not say in time"):
        await priced(price=PriceTable(function="cost")).offer(USER, {}, ask)


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(tool: Tool | None = None, **own: Any) -> Tool:
    rules = prices(None, {"search": ToolConfig(**own)})
    tool = tool or a_tool()
    found = rules.price(tool, frozenset())
    assert found is not None
    return rules.shown(tool, found)


def test_a_tools_price_is_in_its_meta_whoever_said_so() -> None:
    meta = shown(a_tool(meta={PRICE_META: "$5", "a": 1}), price="$0.01", trial=3, flow="upfront").meta
    assert meta is not UNSET and meta["a"] == 1
    version = meta[PRICE_META].pop("version")
    assert len(version) == 12
    assert meta[PRICE_META] == {
        "currency": "USD",
        "amount": "0.01",
        "words": "$0.01 a call; the first 3 successful calls cost nothing; paid before it runs",
        "networks": ["eip155:84532"],
        "flow": "upfront",
    }
    assert (meta["agents-x402/paymentRequired"], meta["agents-x402/priceUSD"]) == (True, 0.01)


def test_a_price_that_depends_is_shown_with_what_it_depends_on_and_its_bound() -> None:
    meta = shown(price=COMPUTED).meta
    assert meta is not UNSET
    assert meta[PRICE_META] == {
        "currency": "USD",
        "dynamic": True,
        "most": "0.05",
        "words": "priced by its arguments: 0.01 + 0.002 * len(text) dollars, at most $0.05",
        "networks": ["eip155:84532"],
        "flow": "after",
    }
    assert "agents-x402/priceUSD" not in meta


def test_a_tool_for_callers_with_a_plan_says_so() -> None:
    meta = shown(price="plan").meta
    assert meta is not UNSET
    assert meta[PRICE_META]["planOnly"] is True and "amount" not in meta[PRICE_META]
    assert "agents-x402/paymentRequired" not in meta


def test_a_paid_tool_never_claims_that_a_repeat_is_without_effect() -> None:
    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True)
    tool = shown(a_tool(annotations=hints), price="$0.01")
    assert tool.annotations == ToolAnnotations(read_only_hint=True, idempotent_hint=False)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ({"price": "$0.01"}, "$0.01 a call"),
        ({"price": "$1.5"}, "$1.50 a call"),
        ({"price": "$0.000001"}, "$0.000001 a call"),
        ({"price": PriceTable(function="f")}, "priced by its arguments"),
        ({"price": "$0.01", "price_for": {"payer": "$0.02"}}, "$0.01 a call; $0.02 a call for callers without a login"),
        ({"price_for": {"payer": "$0.02"}}, "$0.02 a call; free for people who are logged in; free for machines; free for API keys"),
        ({"price": "$0.01", "free_calls": 100}, "$0.01 a call; 100 calls a month cost nothing"),
        ({"price": "plan", "trial": 1}, "for callers with a plan; the first successful call costs nothing"),
    ],
)  # fmt: skip
def test_a_price_in_words(tool: dict[str, Any], words: str) -> None:
    assert words_of(priced(**tool)) == words


def test_pages_say_what_a_program_could_spend() -> None:
    one, other = priced(price="$0.01"), priced(price="$0.05")
    assert words_of_prices([]) == words_of_prices([None, priced(price="plan")]) == ""
    assert words_of_prices([one, None]) == "one of its tools costs $0.01 a call"
    assert words_of_prices([one, other]) == "2 of its tools cost up to $0.05 a call"
    assert words_of_prices([one, priced(price=COMPUTED)]) == "2 of its tools cost up to $0.05 a call"
    unbounded = priced(price=PriceTable(function="f"))
    assert words_of_prices([one, unbounded]) == "2 of its tools cost money, by what they are asked for"


# ── in the catalogue ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_catalogue_keeps_the_price_with_the_tool_and_what_is_free_as_it_was() -> None:
    source = Source(name="a", backend=Mute())
    free = Catalog([source], None, prices()).tools["search"]
    assert free.price is None and free.tool == a_tool()
    entry = Catalog([source], None, prices("$0.01")).tools["search"]
    assert isinstance(entry.price, PricedTool)
    assert entry.tool.meta is not UNSET and PRICE_META in entry.tool.meta


def test_what_an_author_says_and_does_not_count_is_not_shown() -> None:
    backend = Mute(a_tool(meta={PRICE_META: "$0.03", "a": 1}), a_tool("look", meta={PRICE_META: "$0.03"}))
    source = Source(name="a", backend=backend)
    for rules in (None, prices(payments=None), prices("free")):
        found = Catalog([source], None, rules).tools
        assert (found["search"].tool.meta, found["look"].tool.meta) == ({"a": 1}, UNSET)
        assert found["search"].price is None


TAKES_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ({"price": PriceTable(expression="0.01 * pages")}, "looks at pages, which it does not take"),
        (
            {"price_for": {"payer": PriceTable(function="gone")}},
            "is a function gone, which its agent does not have",
        ),
    ],
)
def test_a_price_that_could_be_said_of_no_call_is_found_when_the_tool_is(
    own: dict[str, Any], problem: str
) -> None:
    tool = Tool(name="search", input_schema=TAKES_TEXT)
    rules = prices(None, {"search": ToolConfig(**own)})
    for functions in (frozenset[str](), FUNCTIONS):
        with pytest.raises(BadTerms, match=f"the tool search: its price {problem}"):
            rules.price(tool, functions)
    fine = prices(None, {"search": ToolConfig(price=PriceTable(expression="0.01 * len(text)"))})
    assert fine.price(tool, frozenset()) is not None


@pytest.mark.parametrize("properties", [None, [], {}, TAKES_TEXT["properties"]])
def test_what_a_tool_takes_is_held_against_an_expression_where_it_is_said(properties: object) -> None:
    tool = Tool(name="search", input_schema={"type": "object", "properties": properties})
    rules = prices(None, {"search": ToolConfig(price=PriceTable(expression="0.01 * len(text)"))})
    assert rules.price(tool, frozenset()) is not None
    assert prices("$0.01").price(tool, frozenset()) is not None


def test_an_author_may_name_a_function_and_nothing_else_in_a_table() -> None:
    found = prices().price(a_tool(meta={PRICE_META: {"function": "f"}}), FUNCTIONS)
    assert found is not None and found.depends(USER)


def test_whose_word_a_price_is_is_known_for_each_kind_of_caller() -> None:
    written = a_tool(meta={PRICE_META: "$0.03"})
    for rules, authored in (
        (prices(), {"user", "payer", "api_key"}),
        (prices(None, {"search": ToolConfig(price_for={"payer": "$0.01"})}), {"user", "api_key"}),
        (prices("$0.03"), set[str]()),
    ):
        found = rules.price(written, frozenset())
        assert found is not None
        assert found.authored & {"user", "payer", "api_key"} == authored
        assert {KIND_OF[kind] for kind in KIND_OF if found.as_agent_says(kind)} == found.authored
    asked = prices("$0.03", {"search": ToolConfig(price=PriceTable(function="f"))})
    found = asked.price(a_tool(), FUNCTIONS)
    assert found is not None and found.as_agent_says(USER)


def test_an_agent_whose_price_is_none_cannot_be_offered() -> None:
    backend = Mute(a_tool(meta={PRICE_META: "cheap"}))
    with pytest.raises(CatalogError, match="its price"):
        Catalog([Source(name="a", backend=backend)], None, prices(payments=PAYMENTS))


@pytest.mark.parametrize("kind", [{}, {"type": "object"}, {"type": "string"}])
def test_an_output_schema_that_allows_for_a_challenge_can_be_sent(kind: dict[str, Any]) -> None:
    found = prices("$0.01")
    above = {"$schema": "s", "$defs": {"a": {}}, "definitions": {"b": {}}}
    tool = a_tool(output_schema={**above, **kind, "properties": {"now": {"$ref": "#/$defs/a"}}})
    price = found.price(tool, frozenset())
    assert price is not None
    shown = found.shown(tool, price)
    schema = msgspec.json.decode(msgspec.json.encode(shown.output_schema))
    answer, challenge = schema.pop("anyOf")
    assert answer == {**kind, "properties": {"now": {"$ref": "#/$defs/a"}}}
    assert challenge["required"] == ["x402Version", "accepts"]
    assert schema == above | (kind if kind == {"type": "object"} else {})
