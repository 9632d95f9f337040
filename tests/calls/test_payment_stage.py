"""Where a call meets the till: what its caller hears before it has paid."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from auth.values.identity_model import ANONYMOUS, STRANGER, Principal, PrincipalKind
from server.agents.base.outlets import HeldOutlet
from server.calls.charge_before_task import let_go_of
from server.calls.payment_from_request import version_in_header
from server.calls.payment_stage import (
    as_extension,
    begin_ahead,
    charged,
    refused,
    release_ahead,
    with_payment_in_vain,
)
from server.calls.request import Request
from server.calls.tools_call import TOOL_CALL
from server.mcp.call_failures import BackendError, Paused
from server.mcp.call_outlet import LogMessage, NullOutlet, Progress
from server.mcp.errors import AgentTooSlow
from server.mcp.inbound_messages import Route
from server.mcp.messages import TextContent, Tool
from server.mcp.method_params import NO_META, CallToolParams, RequestMeta
from server.mcp.result_encoding import RawResult, ToolResult
from server.mcp.versions import LATEST
from server.payments.seller import wallets
from server.payments.seller.priced_call import (
    Earlier,
    HeaderSettlement,
    PaidInVain,
    Refusal,
    Shown,
    Started,
    Unpaid,
)
from server.store.idempotency.sealed_answers import MAX_ANSWER_BYTES
from server.store.jobs import StoreUnavailable
from tests.interaction.agents import USER
from tests.payments.seller.open_till import ANSWER, OpenTill, a_call, an_offer, no_room, open_till, reason


def _tool(*, as_agent_says: bool = False) -> Any:
    price = SimpleNamespace(as_agent_says=lambda _: as_agent_says)
    return SimpleNamespace(tool=SimpleNamespace(name="search"), price=price)


TOOL: Any = _tool()


class Heard(NullOutlet):
    def __init__(self) -> None:
        super().__init__("nobody")
        self.events: list[Progress | LogMessage] = []

    async def emit(self, event: Progress | LogMessage) -> None:
        self.events.append(event)


def _request(begun: Started) -> Any:
    return SimpleNamespace(
        principal=SimpleNamespace(kind=PrincipalKind.USER),
        sold=None,
        charge=begun.id,
        unhurried=False,
        when_written=None,
        header_version=0,
        settled=None,
        in_vain=None,
        unpaid=None,
        reached=False,
        retry_after=None,
    )


async def _withheld(at: OpenTill, **offer: Any) -> bool:
    begun = await at.till.begin(a_call(), an_offer(**offer), Shown())
    assert isinstance(begun, Started)
    at.till.hand_over(begun)
    request = _request(begun)
    asked: list[bool] = []

    async def run(withheld: bool) -> tuple[ToolResult, str]:
        asked.append(withheld)
        return ANSWER, "ok"

    await charged(request, TOOL, at.till, {}, run)
    assert request.when_written is not None
    return asked.pop()


async def test_nothing_of_an_answer_is_heard_before_it_is_paid_for() -> None:
    async with open_till() as at:
        await at.give(50_000)
        assert await _withheld(at)


@pytest.mark.parametrize("as_said", [True, False])
async def test_an_agent_hears_for_how_much_its_call_was_sold_and_whether_by_its_word(as_said: bool) -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        at.till.hand_over(begun)
        request, heard = _request(begun), list[Any]()

        async def run(_withheld: bool) -> tuple[ToolResult, str]:
            heard.append((request.sold, request.sold_as_said))
            return ANSWER, "ok"

        await charged(request, _tool(as_agent_says=as_said), at.till, {}, run)
        assert heard == [(10_000, as_said)]


async def test_what_was_taken_hold_of_for_a_task_that_is_not_performed_is_given_back_at_once() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        at.till.hand_over(begun)
        endpoints: Any = {"main": SimpleNamespace(till=at.till)}
        order: Any = SimpleNamespace(server="main", charge=begun.id)
        await let_go_of({}, order)  # its server is not there any more
        assert (await at.wallet())["held"] == 10_000
        for _ in range(2):
            await let_go_of(endpoints, order)
            assert (await at.wallet())["held"] == 0
        assert await at.rows("charges") == []


async def test_what_was_taken_hold_of_ahead_is_taken_once_the_task_is_performed_or_given_back() -> None:
    async with open_till() as at:
        purse = wallets.wallet_of(USER)
        assert purse is not None
        await at.give(50_000, purse)
        shop = Shop(at)
        request = _a_request(shop.endpoint)
        assert await begin_ahead(request, shop.tool) is None
        assert ((await at.wallet(purse))["held"], request.price) == (10_000, an_offer().version)
        [charge] = await at.rows("charges")
        assert charge["fingerprint"] == at.till.fingerprint("search", {"q": "x"})
        known = ("id", "call_id", "caller", "client_id", "grant_id", "wallet")
        assert [charge[name] for name in known] == [
            request.charge, "call_1", USER.key(), USER.client_id, USER.grant_id, purse
        ]  # fmt: skip
        await release_ahead(request)
        assert ((await at.wallet(purse))["held"], request.charge) == (0, None)
        await release_ahead(request)
        assert await begin_ahead(request, shop.tool) is None
        answer, outcome = await shop.call(request)
        assert (answer.is_error, outcome) == (False, "ok")
        wallet = await at.wallet(purse)
        assert (wallet["balance"], wallet["held"]) == (40_000, 0)


async def test_what_cannot_be_paid_for_becomes_no_task() -> None:
    async with open_till() as at:
        shop = Shop(at)
        request = _a_request(shop.endpoint)
        refusal = await begin_ahead(request, shop.tool)
        assert refusal is not None and refusal.asks_payment and request.charge is None
        shop.free = True
        assert await begin_ahead(request, shop.tool) is None and request.charge is None


async def test_a_call_that_asks_its_caller_first_holds_nothing_meanwhile() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        at.till.hand_over(begun)

        async def run(_withheld: bool) -> tuple[ToolResult, str]:
            raise Paused

        with pytest.raises(Paused):
            await charged(_request(begun), TOOL, at.till, {}, run)
        assert (await at.wallet())["held"] == 0


async def test_what_was_paid_beforehand_is_heard_as_it_comes() -> None:
    async with open_till() as at:
        await at.give(50_000)
        assert not await _withheld(at, upfront=True)


@pytest.mark.parametrize("upfront", [False, True])
async def test_whoever_paid_beforehand_is_told_that_it_is_not_lost_when_the_tool_fails(upfront: bool) -> None:
    async with open_till() as at:
        await at.give(50_000)
        failed = ToolResult(content=(TextContent(text="broken"),), is_error=True, meta={"mine": 1})

        async def run(_withheld: bool) -> tuple[ToolResult, str]:
            return failed, "error"

        told: list[Any] = []
        for _ in range(4):
            begun = await at.till.begin(a_call(), an_offer(upfront=upfront), Shown())
            assert isinstance(begun, Started)
            at.till.hand_over(begun)
            told.append((await charged(_request(begun), TOOL, at.till, {}, run))[0])
        if not upfront:
            assert told == [failed] * 4
            assert (await at.wallet())["balance"] == 50_000
            return
        assert [each.meta["io.ostiary/payment"]["retriesLeft"] for each in told] == [3, 2, 1, 0]
        assert all(each.meta["mine"] == 1 and each.content[0].text == "broken" for each in told)
        assert all("it costs nothing more" in each.content[1].text for each in told[:3])
        assert "refund" in told[3].content[1].text
        assert (await at.wallet())["balance"] == 40_000


@pytest.mark.parametrize("joins", [False, True])
async def test_progress_is_heard_without_its_words_and_logs_not_at_all(joins: bool) -> None:
    heard = Heard()
    outlet = HeldOutlet(heard)
    await outlet.emit(Progress(progress=1, total=3, message="the answer is 42", joins=joins))
    await outlet.emit(LogMessage(level="info", data="the answer is 42"))
    assert heard.events == [Progress(progress=1, total=3)]


def _a_request(endpoint: Any, meta: RequestMeta = NO_META, headers: Any = None) -> Request:
    params = CallToolParams(name="search", arguments={"q": "x"}, meta=meta)
    return Request(
        endpoint=endpoint, principal=USER, call_id="call_1", idempotency_key="k", headers=headers,
        route=Route(TOOL_CALL, 1, params, LATEST, None, 0), priced=True,
    )  # fmt: skip


class Shop:
    """A tool that costs something, called as `_run_priced` calls it."""

    def __init__(self, at: OpenTill) -> None:
        names = (
            "server",
            "fingerprint",
            "begin",
            "release",
            "finish",
            "answered",
            "unpaid",
            "interrupt",
            "interruption_told",
            "take_over",
            "hand_over",
        )
        self.till: Any = SimpleNamespace(**{name: getattr(at.till, name) for name in names}, offer=self.offer)
        self.tool: Any = SimpleNamespace(
            tool=Tool(name="search", input_schema={"type": "object"}),
            price=SimpleNamespace(depends=lambda _: False, as_agent_says=lambda _: False),
            terms=SimpleNamespace(idempotent=True, deadline_seconds=30.0, dedupe_seconds=0),
        )
        self.endpoint: Any = SimpleNamespace(log=at.log, till=self.till)
        self.unpriced: Exception | None = None
        self.upfront = self.free = False
        self.fails = False
        self.runs = 0

    async def offer(self, *_: Any) -> Any:
        if self.unpriced is not None:
            raise self.unpriced
        return None if self.free else an_offer(upfront=self.upfront)

    async def call(self, request: Request | None = None) -> tuple[ToolResult, str]:
        request = request or _a_request(self.endpoint)

        async def run(_withheld: bool) -> tuple[ToolResult, str]:
            self.runs += 1
            request.reached = True
            if self.fails:
                raise BackendError("the agent has ended")
            return ANSWER, "ok"

        return await charged(request, self.tool, self.till, {"q": "x"}, run)


async def test_a_call_that_was_paid_beforehand_and_cut_off_runs_again_once_its_caller_was_told() -> None:
    async with open_till() as at:
        purse = wallets.wallet_of(USER)
        assert purse is not None
        await at.give(50_000, purse)
        shop = Shop(at)
        shop.tool.terms.idempotent, shop.upfront, shop.fails = False, True, True
        with pytest.raises(BackendError):
            await shop.call()
        request = _a_request(shop.endpoint)
        answer, _ = await shop.call(request)
        told: Any = answer.meta
        assert told["io.ostiary/payment"]["reason"] == "interrupted" and shop.runs == 1
        assert request.when_written is not None
        request.when_written()
        shop.fails = False
        again, _ = await shop.call()
        assert not again.is_error and shop.runs == 2
        assert (await at.wallet(purse))["balance"] == 40_000


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("pays", [False, True])
async def test_what_was_paid_by_a_header_is_confirmed_in_one_whatever_becomes_of_the_call(
    pays: bool, fails: bool
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        offer = an_offer(upfront=fails)
        begun = await at.till.begin(a_call(), offer, Shown(payment=at.payment(offer) if pays else None))
        assert isinstance(begun, Started)
        at.till.hand_over(begun)
        request = _request(begun)
        request.header_version, request.unhurried, request.reached = 2, fails, True

        async def run(_withheld: bool) -> tuple[ToolResult, str]:
            return (FAILED if fails else ANSWER), "ok"

        answer, _ = await charged(request, TOOL, at.till, {}, run)
        receipt = (answer.meta or {}).get("x402/payment-response")
        assert (receipt is not None) is pays
        assert request.settled == (HeaderSettlement(settlement=receipt, version=2) if receipt else None)
        assert fails or request.when_written.keywords["on_chain"] is pays
        assert begun.call.patient is fails


async def test_a_call_with_a_key_that_is_made_again_leads_to_its_answer_and_is_known_to_be_heard() -> None:
    async with open_till() as at:
        purse = wallets.wallet_of(USER)
        assert purse is not None
        await at.give(50_000, purse)
        shop = Shop(at)
        first, _ = await shop.call()
        request = _a_request(shop.endpoint)
        again, outcome = await shop.call(request)
        assert (again.content, outcome, shop.runs) == (first.content, "replayed", 1)
        assert again.meta is not None and again.meta["io.ostiary/replayed"] is True
        assert request.when_written is not None
        assert (await at.wallet(purse))["balance"] == 40_000


PAYER = msgspec.structs.replace(STRANGER, subject="payer:eip155:1:0xab", grant_id="grt_p")


@pytest.mark.parametrize(
    ("who", "stranger"), [(USER, False), (ANONYMOUS, False), (PAYER, False), (STRANGER, True)]
)
async def test_what_costs_nothing_is_for_callers_with_a_login_where_others_may_pay(
    who: Principal, stranger: bool
) -> None:
    async with open_till() as at:
        shop = Shop(at)
        shop.free = True
        request = _a_request(shop.endpoint)
        request.idempotency_key = None
        request.principal = who
        answer, outcome = await shop.call(request)
        assert (answer.is_error, outcome, shop.runs) == (
            stranger,
            "unpaid" if stranger else "ok",
            not stranger,
        )
        assert request.unpaid is None or request.unpaid.refusal.reason == "login_required"


def test_a_payment_for_what_has_failed_is_shown_with_the_failure() -> None:
    paid, in_vain = {"success": True}, PaidInVain(tries=2)
    assert with_payment_in_vain(in_vain, FAILED).meta == {
        "io.ostiary/payment": {"paid": True, "retriesLeft": 2}
    }
    told = with_payment_in_vain(msgspec.structs.replace(in_vain, settlement=paid), FAILED)
    assert told.meta is not None and told.meta["x402/payment-response"] == paid


def test_only_what_was_paid_by_a_header_is_confirmed_in_one() -> None:
    shown: Any = SimpleNamespace(payment=SimpleNamespace(version=2))
    in_meta = RequestMeta(payment={"x402Version": 2})
    assert version_in_header(_a_request(None, headers={}), shown) == 2
    assert version_in_header(_a_request(None, headers={}), Shown()) == 0
    assert version_in_header(_a_request(None, in_meta, headers={}), shown) == 0
    assert version_in_header(_a_request(None), shown) == 0


def test_what_asks_for_payment_is_said_by_the_extension_with_all_that_is_said_besides() -> None:
    challenge, failed = {"x402Version": 2, "error": "Pay. It was not settled."}, {"success": False}
    refusal = Refusal(
        reason="not_settled", text="Pay. It was not settled.", brief="Pay.", retry_after=3, settlement=failed
    )
    request = _a_request(None, headers={})
    request.header_version = 2
    asked = {**challenge, "error": "Pay."}
    besides = {
        "io.ostiary/payment": {"reason": "not_settled", "retryAfter": 3},
        "x402/payment-response": failed,
    }
    usual = refused(request, Unpaid(refusal=refusal, challenge=challenge))
    assert usual.meta == {**besides, "x402/error": asked} and usual.structured == asked
    assert request.settled == HeaderSettlement(settlement=failed, version=2)
    assert as_extension(request, usual) == RawResult(
        {"paymentRequired": challenge, "_meta": besides}, "payment_required"
    )
    request = _a_request(None, headers={})
    unasked = refused(request, Unpaid(refusal=refusal))
    assert as_extension(request, unasked) is unasked and unasked.meta == besides
    assert request.settled is None, "it was not paid by a header"


@pytest.mark.parametrize(("lost", "runs"), [("offer", 0), ("claim", 0), ("finish", 1)])
async def test_a_call_that_cannot_be_written_down_is_told_to_come_again_and_is_charged_once(
    lost: str, runs: int
) -> None:
    """Not as an error of the server's: a database that is restarted, or promoted, is nobody's fault."""
    async with open_till() as at:
        purse = wallets.wallet_of(USER)
        assert purse is not None
        await at.give(50_000, purse)
        shop = Shop(at)
        if lost == "offer":
            shop.unpriced = StoreUnavailable("no room")
        else:
            at.store.failing = no_room(lost, "release")
        answer, outcome = await shop.call()
        told: Any = answer.meta
        assert (answer.is_error, outcome, shop.runs) == (True, "unpaid", runs)
        assert told["io.ostiary/payment"] == {"reason": "temporarily_unavailable", "retryAfter": 2}
        assert "charge.not_written" in at.heard.getvalue() and "no room" in at.heard.getvalue()
        at.store.failing, shop.unpriced = no_room(), None
        await at.look()  # what could not be let go then
        again, _ = await shop.call()
        assert not again.is_error
        wallet = await at.wallet(purse)
        assert (wallet["balance"], wallet["held"]) == (40_000, 0)


FAILED = ToolResult(content=[TextContent(text="the connection to the bank is lost")], is_error=True)
KEPT = msgspec.structs.replace(FAILED, meta={"io.ostiary/payment": {"reason": "failed", "paid": False}})
TOO_LARGE = ToolResult(content=(TextContent(text="x" * (MAX_ANSWER_BYTES + 1)),))
WAYS = ("slow", "crashed", "told", "large", "left", "busy", "unreached", "left before")


async def _ended(at: OpenTill, begun: Started, way: str) -> tuple[Any, ToolResult | None]:
    at.till.hand_over(begun)
    request = _request(begun)

    async def run(_withheld: bool) -> tuple[ToolResult, str]:
        request.reached = way not in ("unreached", "left before")
        if way in ("left", "left before"):
            scope.cancel()
            await trio.sleep_forever()
        if way == "slow":
            raise AgentTooSlow("search", 1)
        if way == "crashed":
            raise BackendError("the agent has ended")
        if way == "busy":
            request.retry_after = 5
        return (TOO_LARGE if way == "large" else FAILED), "ok"

    with suppress(AgentTooSlow, BackendError), trio.CancelScope() as scope:
        return request, (await charged(request, TOOL, at.till, {}, run))[0]
    return request, None


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("by", ["balance", "payment"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_call_with_a_key_that_came_to_its_tool_and_failed_is_not_made_again(
    way: str, by: str, idempotent: bool
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = Shown(key="order-1", payment=None if by == "balance" else at.payment())
        call = a_call(idempotent=idempotent)
        begun = await at.till.begin(call, an_offer(), shown)
        assert isinstance(begun, Started)
        await _ended(at, begun, way)
        for _ in range(2):
            again = await at.till.begin(call, an_offer(), shown)
            if idempotent or way in ("busy", "unreached", "left before"):
                assert isinstance(again, Started)
                await at.till.release(again)
            elif way == "told":
                assert isinstance(again, Earlier) and (again.answer, again.meta) == (KEPT, {})
                at.till.answered(again.charge_id, keyed=again.keyed, keeps_ms=0, on_chain=again.on_chain)
            else:
                assert reason(again) == "interrupted"
            await at.look()
        wallet = await at.wallet()
        assert (wallet["balance"], wallet["held"]) == (50_000, 0)
        assert await at.rows("payments") == [] and at.facilitators.settled == []
        assert isinstance(await at.till.begin(call, an_offer(), Shown(key="order-2")), Started)


async def test_whoever_waits_for_a_call_that_fails_is_told_the_same() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown(key="order-1"))
        assert isinstance(begun, Started)
        heard: list[Any] = []

        async def ask() -> None:
            heard.append(await at.till.begin(a_call(), an_offer(), Shown(key="order-1")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await _ended(at, begun, "told")
        assert [each.answer for each in heard] == [KEPT]


@pytest.mark.parametrize("way", ["slow", "crashed", "told", "large"])
async def test_what_was_paid_beforehand_and_failed_runs_again_once_its_caller_was_told(way: str) -> None:
    async with open_till() as at:
        await at.give(50_000)
        offer, shown = an_offer(upfront=True), Shown(key="order-1")
        begun = await at.till.begin(a_call(), offer, shown)
        assert isinstance(begun, Started)
        request, answer = await _ended(at, begun, way)
        assert reason(await at.till.begin(a_call(), offer, shown)) == "interrupted", "nobody heard of it yet"
        assert (request.when_written is not None) and (answer is None) == (way in ("slow", "crashed"))
        request.when_written()
        again = await at.till.begin(a_call(), offer, shown)
        assert isinstance(again, Started) and again.paid
        await at.till.finish(again, ANSWER)
        assert (await at.wallet())["balance"] == 40_000
