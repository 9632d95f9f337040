"""Where what stands in front of a tool meets the till: nothing is charged for what is withheld, and what is kept is what may be shown."""

from __future__ import annotations

from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

from server.calls.payment_stage import charged
from server.calls.policy.hooks import HookFailed
from server.calls.policy_messages import POLICY, arguments_of
from server.calls.policy_stage import governed, overseen
from server.calls.request import Request
from server.calls.tools_call import TOOL_CALL
from server.mcp.inbound_messages import Route
from server.mcp.messages import TextContent, Tool
from server.mcp.method_params import CallToolParams
from server.mcp.result_encoding import ToolResult
from server.mcp.schema import ToolSchema
from server.mcp.versions import LATEST
from server.payments.seller import wallets
from server.payments.seller.priced_call import Shown, Started
from tests.calls.policy.governing import Governing, HookRunnerFake, governing, hooked
from tests.interaction.agents import USER
from tests.payments.seller.open_till import OpenTill, a_call, an_offer, open_till
from tests.payments.x402 import builders

SEARCH = Tool(name="search", input_schema={"type": "object"})
FOUND = ToolResult(content=(TextContent(text="ann@example.org"),))


# A fixed one, for everybody.
PRICE: Any = SimpleNamespace(depends=lambda _: False, as_agent_says=lambda _: False)


async def pay(at: OpenTill, made: Governing, key: str = "k") -> tuple[ToolResult, str]:
    """One call of it, with a key, as `_run_priced` makes it."""
    entry: Any = SimpleNamespace(
        tool=SEARCH, schema=ToolSchema(SEARCH), policy=made.policy.of(SEARCH), price=PRICE
    )
    begun = await at.till.begin(a_call(), an_offer(), Shown(key=key))
    assert isinstance(begun, Started)
    at.till.hand_over(begun)
    params = SimpleNamespace(arguments={"q": "x"})
    request: Any = SimpleNamespace(
        charge=begun.id, unhurried=False, when_written=None, header_version=0, settled=None, in_vain=None, sold=None,
        principal=USER, reached=True, retry_after=None, call_id="call_1", sharer="user:user-1", route=SimpleNamespace(params=params),
    )  # fmt: skip

    async def find(_: Any) -> tuple[ToolResult, str]:
        return FOUND, "ok"

    return await charged(
        request, entry, at.till, {"q": "x"}, lambda _: overseen(request, entry, cast("Any", None), find)
    )


async def test_what_is_kept_of_an_answer_is_what_its_caller_was_shown() -> None:
    async with open_till() as at, governing({"redact": {"sets": ["emails"]}}) as made:
        await at.give(50_000)
        answer, _ = await pay(at, made)
        assert answer.content[0] == TextContent(text="[email redacted]")
        again: Any = await at.till.begin(a_call(), an_offer(), Shown(key="k"))
        assert not isinstance(again, Started)
        assert again.answer.content == [TextContent(text="[email redacted]")]
        assert (await at.wallet())["balance"] == 40_000


async def test_an_answer_that_a_hook_withholds_costs_nothing() -> None:
    runner = HookRunnerFake(lambda _: b'{"decision": "deny", "reason": "no"}')
    async with open_till() as at, governing(hooked("after"), runners=[cast("Any", runner)]) as made:
        await at.give(50_000)
        for key, said in (("k1", runner.answers), ("k2", lambda _: HookFailed("it broke"))):
            runner.answers = said
            answer, outcome = await pay(at, made, key)
            assert answer.is_error and outcome in ("denied", "refused")
            wallet = await at.wallet()
            assert (wallet["balance"], wallet["held"]) == (50_000, 0)
            again: Any = await at.till.begin(a_call(), an_offer(), Shown(key=key))
            assert not isinstance(
                again, Started
            )  # it is the answer for its key, and what was withheld stays so
            assert again.answer.content == list(answer.content)


class Sold:
    """Calls of a tool that costs something, as they are made: past what stands in front of it, to the till."""

    def __init__(self, at: OpenTill, made: Governing) -> None:
        self.runs: list[Any] = []
        self.answer = FOUND
        self.free = False
        names = ("server", "fingerprint", "begin", "release", "finish", "answered", "unpaid")
        self._till: Any = SimpleNamespace(
            **{name: getattr(at.till, name) for name in names}, offer=self._offer
        )
        self._entry: Any = SimpleNamespace(
            tool=SEARCH, schema=ToolSchema(SEARCH), policy=made.policy.of(SEARCH), price=PRICE,
            terms=SimpleNamespace(deadline_seconds=30.0, dedupe_seconds=0, idempotent=False),
        )  # fmt: skip

    async def _offer(self, *_: Any) -> Any:
        return None if self.free else an_offer()

    async def call(
        self, *, key: str | None = "k", payment: Any = None, **more: Any
    ) -> tuple[ToolResult, str]:
        params = CallToolParams(name="search", arguments={"q": "x", **more})
        request = Request(
            endpoint=cast("Any", None), principal=USER, call_id=f"call_{len(self.runs)}", idempotency_key=key,
            route=Route(TOOL_CALL, 1, params, LATEST, None, 0), priced=True, payment=payment,
        )  # fmt: skip

        async def find(_: bool) -> tuple[ToolResult, str]:
            self.runs.append(arguments_of(request))
            return self.answer, "error" if self.answer.is_error else "ok"

        def run(_: Any) -> Awaitable[tuple[ToolResult, str]]:
            return charged(request, self._entry, self._till, arguments_of(request), find)

        return await governed(request, self._entry, cast("Any", None), run, lambda _: None)


async def test_a_key_is_of_the_call_that_came_and_not_of_what_a_hook_makes_of_it_each_time() -> None:
    runner = HookRunnerFake()

    def stamp(_: Any) -> bytes:
        return b'{"decision": "proceed", "arguments": {"q": "x", "at": %d}}' % len(runner.asked)

    runner.answers = stamp
    async with open_till() as at, governing(hooked("before"), runners=[cast("Any", runner)]) as made:
        await at.give(50_000, wallets.wallet_of(USER) or "")
        sold = Sold(at, made)
        assert [(await sold.call())[1] for _ in range(2)] == ["ok", "replayed"]
        assert sold.runs == [{"q": "x", "at": 1}]


async def test_a_confirmed_call_that_comes_again_with_its_key_is_told_what_it_came_to() -> None:
    failed = ToolResult(content=(TextContent(text="no"),), is_error=True)
    async with open_till() as at, governing({"name": "main", "tools": {"search": {"confirm": {}}}}) as made:
        await at.give(50_000, wallets.wallet_of(USER) or "")
        sold = Sold(at, made)
        shown, outcome = await sold.call()
        assert outcome == "unconfirmed"
        yes: dict[str, Any] = {"confirm": True, "preview_id": (shown.meta or {})[POLICY]["previewId"]}
        sold.answer = failed
        assert (await sold.call(**yes))[0].content == failed.content
        sold.answer = FOUND
        assert [(await sold.call(**yes))[1] for _ in range(3)] == ["ok", "replayed", "replayed"]
        other, _ = await sold.call(key="another", **yes)
        assert (other.meta or {})[POLICY]["reason"] == "preview_stale"
        assert sold.runs == [{"q": "x"}] * 2
        assert (await at.wallet(wallets.wallet_of(USER) or ""))["balance"] == 40_000


async def test_what_was_paid_for_and_kept_is_given_by_the_rules_of_now() -> None:
    async with open_till() as at, governing({"name": "main", "redact": {"patterns": ["never"]}}) as before:
        await at.give(50_000, wallets.wallet_of(USER) or "")
        assert (await Sold(at, before).call())[0].content == FOUND.content
        async with governing({"name": "main", "redact": {"sets": ["emails"]}}) as made:
            again, outcome = await Sold(at, made).call()
            assert (outcome, *again.content) == ("replayed", TextContent(text="[email redacted]"))
        async with governing({"name": "main", "policy": [{"tools": ["*"], "decision": "deny"}]}) as made:
            denied, outcome = await Sold(at, made).call()
            assert (outcome, (denied.meta or {})[POLICY]["reason"]) == ("denied", "denied")


async def test_what_nobody_has_looked_at_does_not_make_a_free_call_another_time() -> None:
    async with open_till() as at, governing({"name": "main", "tools": {"search": {"confirm": {}}}}) as made:
        sold = Sold(at, made)
        sold.free = True
        shown, _ = await sold.call(key=None)
        yes: dict[str, Any] = {"confirm": True, "preview_id": (shown.meta or {})[POLICY]["previewId"]}
        payment = builders.payment()
        assert (await sold.call(key=None, payment=payment, **yes))[1] == "ok"
        again, _ = await sold.call(key=None, payment=payment, **yes)
        assert (again.meta or {})[POLICY]["reason"] == "preview_stale"
        assert len(sold.runs) == 1
