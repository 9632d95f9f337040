"""What one tool allows each caller, over a change of the settings (server/store/limits/tool_limits.py)."""

from __future__ import annotations

import pytest

from server.store.limits.restraint_counts import Restraint
from server.store.limits.tool_limits import BoundRules, ToolBounds


def bounds(limit: str) -> ToolBounds:
    return ToolBounds("main", {"read": BoundRules(limit=limit)}, quotas=None, restraint=Restraint())


@pytest.mark.parametrize(("newer", "refused"), [("1/h", True), ("2/h", False)])
async def test_who_was_counted_by_a_rule_is_counted_on_while_the_rule_stays(
    newer: str, refused: bool
) -> None:
    before = bounds("1/h")
    assert await before.use("read", "user:usr_bob") is None
    after = bounds(newer)
    after.succeed(before)
    assert (await after.use("read", "user:usr_bob") is not None) == refused
