"""Skills as a client sees them, and what happens when their document changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import trio
import trio.testing
from shelf import AGENT, skill_folder, written

from server.agents.base.backend import Active, Announce, LibraryBackend, TellsServerInfo
from server.agents.base.catalog import Source
from server.agents.skills.skills_agent import SkillsBackend, SkillsConfig
from server.lib.log.logger import Logger
from server.mcp.messages import Implementation
from server.mcp.terms import CallTerms
from tests.stdio_talk import Client, call, legacy, talking


def log_into(sink: StringIO) -> Logger:
    return structlog.wrap_logger(
        structlog.PrintLogger(sink), processors=[structlog.processors.JSONRenderer()]
    )


def backend(path: Path, *, sink: StringIO | None = None, **settings: Any) -> SkillsBackend:
    config = msgspec.convert({"path": str(path), **settings}, SkillsConfig)
    return SkillsBackend(config, name="main[1]", log=log_into(sink or StringIO()))


def source(under_test: SkillsBackend) -> Source:
    return Source(name="skills", backend=under_test, terms=CallTerms(quick=True))


async def said(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    result = await client.result(legacy("tools/call", call(tool, **arguments)))
    return result["content"][0]["text"], result["isError"]


async def test_a_client_lists_routes_reads_and_resolves(tmp_path: Path) -> None:
    async with talking(source(backend(written(tmp_path)))) as client:
        await client.shake_hands("2024-11-05")
        tools = (await client.result(legacy("tools/list")))["tools"]
        assert [tool["name"] for tool in tools] == [
            "list_skills",
            "route_skill",
            "get_skill",
            "resolve_skill",
        ]
        assert [tool["inputSchema"].get("required", []) for tool in tools] == [
            [],
            ["text"],
            ["name"],
            ["name"],
        ]
        assert all(tool["inputSchema"]["additionalProperties"] is False for tool in tools)

        listed, _ = await said(client, "list_skills")
        assert json.loads(listed)[1] == {"name": "cool", "z": 2, "triggers": ["cool", "let it rest"], "cost": None, "tool": None}  # fmt: skip
        assert await said(client, "route_skill", text="bread!") == (
            "bake  (score 1; matched: bread)\nknead  (score 1; matched: bread)",
            False,
        )
        assert await said(client, "route_skill", text="nothing") == ("no skill matched", False)
        assert await said(client, "get_skill", name="cool") == ("Let it rest.", False)
        assert await said(client, "get_skill", name="soup") == ("unknown skill: soup", True)
        chain, _ = await said(client, "resolve_skill", name="knead")
        assert chain == "### knead\nKnead. See [[z=2]].\n\n### cool\nLet it rest."
        assert await said(client, "resolve_skill", name="soup") == ("unknown skill: soup", True)


async def test_each_skill_is_a_prompt_and_each_plane_a_resource(tmp_path: Path) -> None:
    async with talking(source(backend(written(tmp_path), prefix="k_"))) as client:
        await client.shake_hands()
        prompts = (await client.result(legacy("prompts/list")))["prompts"]
        assert [prompt["name"] for prompt in prompts] == ["k_bake", "k_cool", "k_knead"]
        assert [each["required"] for each in prompts[0]["arguments"]] == [True, True, False]
        assert prompts[1]["description"] == "Let it rest."
        got = await client.result(legacy("prompts/get", {"name": "k_bake", "arguments": {"degrees": "200", "tray": "2"}}))  # fmt: skip
        assert "oven --heat '200' '2'" in got["messages"][0]["content"]["text"]
        missing = await client.answers(legacy("prompts/get", {"name": "k_bake", "arguments": {}}))
        assert missing["error"]["code"] == -32602

        resources = (await client.result(legacy("resources/list")))["resources"]
        assert [each["uri"] for each in resources] == [f"plane://kitchen/{z}" for z in range(4)]
        read = await client.result(legacy("resources/read", {"uri": "plane://kitchen/0"}))
        assert read["contents"][0]["text"] == "# kitchen\n\nWash your hands."
        assert (await said(client, "k_get_skill", name="cool"))[0] == "Let it rest."


async def test_the_files_of_a_folder_are_resources_and_bytes_are_blobs(tmp_path: Path) -> None:
    root = skill_folder(tmp_path / "s", one="---\nname: one\ndescription: first\n---\nDo it.\n")
    (root / "one" / "data.bin").write_bytes(b"\xff")
    async with talking(source(backend(root))) as client:
        await client.shake_hands()
        read = await client.result(legacy("resources/read", {"uri": "skill://one/data.bin"}))
        assert read["contents"] == [{"uri": "skill://one/data.bin", "mimeType": "application/octet-stream", "blob": "/w=="}]  # fmt: skip
        listed, _ = await said(client, "list_skills")
        assert json.loads(listed)[0]["description"] == "first"


def test_it_is_known_by_the_name_of_its_agent(tmp_path: Path) -> None:
    under_test = backend(written(tmp_path))
    assert isinstance(under_test, TellsServerInfo)
    assert isinstance(under_test, Active)
    assert isinstance(under_test, LibraryBackend)
    assert under_test.introduction() == Implementation(name="agent-3md:kitchen", version="0.1.0")


def test_errors_of_a_document_are_told_to_the_log_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    sink = StringIO()
    backend(written(tmp_path, AGENT + "[[z=77]]\n"), sink=sink)
    told = json.loads(sink.getvalue())
    assert (told["event"], told["count"]) == ("skills.faults", 1)
    assert "[dead-link]" in told["faults"][0]
    with pytest.raises(ValueError, match="missingFrontmatter"):
        backend(written(tmp_path, "text"))


async def test_a_document_that_changes_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    sink = StringIO()
    under_test = backend(path := written(tmp_path), sink=sink)
    heard: list[str] = []
    send, changes = trio.open_memory_channel[str](10)
    announce = Announce(lists=lambda: send.send_nowait("lists"), resource=heard.append)

    async def look_until(happened: Callable[[], object]) -> None:
        """Files are looked at in a thread, which takes as long as it takes."""
        while not happened():
            mock_clock.jump(60)
            await trio.testing.wait_all_tasks_blocked(0.01)

    async with trio.open_nursery() as nursery:
        await nursery.start(under_test.run, announce)
        path.write_text(AGENT.replace("Let it rest.", "Wait an hour."), "utf-8")
        await look_until(lambda: heard)
        assert await changes.receive() == "lists"
        assert heard == ["plane://kitchen/2"]
        cool = under_test.opened.book.get("cool")
        assert cool is not None
        assert cool.body == "Wait an hour."
        path.write_text("broken", "utf-8")
        await look_until(lambda: "skills.not_reloaded" in sink.getvalue())
        assert under_test.opened.book.get("cool") is cool
        nursery.cancel_scope.cancel()
    send.close()
    changes.close()
