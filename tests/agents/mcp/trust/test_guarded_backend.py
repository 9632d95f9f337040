"""The guard where it stands: between an upstream and what its back-end offers."""

from __future__ import annotations

import msgspec

from server.agents.mcp.trust.definitions import define, seal_of
from server.agents.mcp.trust.pin_rows import UpstreamKey
from tests.agents.mcp.trust.trust_fakes import a_tool, lists, open_house
from tests.agents.mcp.upstreams import Double, gate, over_tcp, soon, tool


async def test_what_waits_is_offered_the_moment_that_it_is_accepted_and_has_its_name_here() -> None:
    async with open_house() as house:
        desk, known = await house.desk(key=UpstreamKey("main", "up"))
        double = Double(lists={"tools": [tool("say"), tool("shout"), tool("hide")]})
        async with (
            over_tcp(double) as tcp,
            gate(tcp=tcp, id="up", rename={"shout": "cry"}, tools=["*", "!hide"], guard=known.guard) as door,
        ):
            assert door.backend.tools() == []
            assert "the tool say is new" in (door.backend.withheld("up__say") or "")
            assert "the tool shout is new" in (door.backend.withheld("up__cry") or "")
            assert door.backend.withheld("up.shout") is None
            assert (
                door.backend.withheld("up.hide") is None
            )  # the settings leave it out: nobody need look at it
            assert door.backend.withheld("say") is None
            trouble = door.backend.trouble()
            assert trouble is not None
            assert "1 more wait to be looked at" in trouble.words
            changes = door.changes
            await desk.accept(known, None, seal=seal_of(desk.withheld(known, None)), by="local:7")
            assert [each.name for each in door.backend.tools()] == ["up__say", "up__cry"]
            assert door.changes == changes + 1
            assert door.backend.trouble() is None
            double.lists["tools"] = [tool("say", description="Says, and tells."), tool("shout")]
            door.backend.try_again()
            await soon(lambda: [each.name for each in door.backend.tools()] == ["up__cry"])


async def test_whether_a_tools_calls_have_to_be_tasks_is_accepted_with_it() -> None:
    def guarded(support: str) -> dict[str, str]:
        offered = msgspec.structs.replace(lists(a_tool()), tasks={"read": support})
        known.guard.allowed(offered)
        return {key.name: each.digest for key, each in known.guard.offered.items()}

    async with open_house() as house:
        desk, known = await house.desk()
        optional = guarded("optional")
        # As it always was: nothing has to be accepted once more for what may be a task and need not.
        assert optional == {"read": define("tool", "read", a_tool()).digest}
        await desk.accept(known, None, seal=seal_of(desk.withheld(known, None)), by="local:0")
        assert known.guard.verdict.blocked == ()
        guarded("required")
        assert [each.key.name for each in known.guard.verdict.changed] == ["read"]
