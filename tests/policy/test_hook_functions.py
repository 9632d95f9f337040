"""Functions of a Python file as hooks (server/policy/hooks.py): which can be asked, and what the others lack."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
import trio

from server.backends.base import Announce
from server.policy.hooks import HookCaller, HookFailed, PythonHooks
from server.settings.rules import HookProgram

HOOKS = """
def look(call: dict) -> dict:
    return {"decision": "proceed", "reason": call["tool"]}

def nothing() -> dict:
    return {}

def two(call: dict, more: str) -> dict:
    return {}
"""


async def test_a_function_of_one_argument_is_asked_and_of_others_it_is_said_what_they_lack(
    tmp_path: Path,
) -> None:
    file = tmp_path / "hooks.py"
    file.write_text(HOOKS, "utf-8")
    hooks = PythonHooks(
        HookProgram(file=str(file)), {"PATH": "/usr/bin:/bin"}, name="main", log=structlog.get_logger()
    )
    caller = HookCaller(subject="ada", sharer="ada", call_id="c")
    async with trio.open_nursery() as nursery:
        await nursery.start(hooks.run, Announce(lists=lambda: None, resource=lambda _: None))
        assert hooks.lacks("look") is None
        assert b'"search"' in await hooks.ask("look", {"tool": "search"}, caller)
        for name in ("nothing", "two"):
            assert "one argument" in (hooks.lacks(name) or "")
            with pytest.raises(HookFailed, match="one argument"):
                await hooks.ask(name, {}, caller)
        assert "no function" in (hooks.lacks("gone") or "")
        nursery.cancel_scope.cancel()
    await hooks.aclose()
