"""Where what stands in front of a tool meets the till: nothing is charged for what is withheld, and what is kept is what may be shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from server.mcp.messages import TextContent, Tool
from server.mcp.results import ToolResult
from server.mcp.schema import ToolSchema
from server.policy.hooks import HookFailed
from server.request.charging import charged
from server.request.governed import overseen
from server.till.calls import Shown, Started
from tests.interaction.agents import USER
from tests.policy.governing import Governing, HookRunnerFake, governing, hooked
from tests.till.open_till import OpenTill, a_call, an_offer, open_till

SEARCH = Tool(name="search", input_schema={"type": "object"})
FOUND = ToolResult(content=(TextContent(text="ann@example.org"),))


async def pay(at: OpenTill, made: Governing) -> tuple[ToolResult, str]:
    """One call of it, with a key, as `_run_priced` makes it."""
    entry: Any = SimpleNamespace(tool=SEARCH, schema=ToolSchema(SEARCH), policy=made.policy.of(SEARCH))
    begun = await at.till.begin(a_call(), an_offer(), Shown(key="k"))
    assert isinstance(begun, Started)
    at.till.hand_over(begun)
    params = SimpleNamespace(arguments={"q": "x"})
    request: Any = SimpleNamespace(
        charge=begun.id, unhurried=False, when_written=None, header_version=0, settled=None, in_vain=None,
        principal=USER, call_id="call_1", sharer="user:user-1", route=SimpleNamespace(params=params),
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
        for said in (runner.answers, lambda _: HookFailed("it broke")):
            runner.answers = said
            answer, outcome = await pay(at, made)
            assert answer.is_error and outcome in ("denied", "refused")
            wallet = await at.wallet()
            assert (wallet["balance"], wallet["held"]) == (50_000, 0)
