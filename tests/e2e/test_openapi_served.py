"""The example of docs/agents/openapi.md, as it is written there, before an API that answers."""

from __future__ import annotations

import re
from pathlib import Path

from programs import ROOT, SOURCE, Program
from test_serve_stdio import piped

from tests.agents.python.fake_agent import Exchange, fake_agent
from tests.stdio_talk import call, legacy

PAGE = (ROOT / "docs" / "agents" / "openapi.md").read_text("utf-8")


def shown(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


async def test_the_example_of_the_page_is_a_server_whose_tools_are_its_operations(tmp_path: Path) -> None:
    async def answers(exchange: Exchange) -> None:
        status = 200 if exchange.request.target == "/v1/stations/BE%2F1" else 404
        await exchange.reply({"name": "Bern"}, status=status)

    async with fake_agent(answers) as api:
        document = shown("yaml").replace("127.0.0.1:9000", f"127.0.0.1:{api.port}")
        (tmp_path / "stations.yaml").write_text(document, "utf-8")
        (tmp_path / "ostiary.toml").write_text(shown("toml"), "utf-8")
        async with piped(Program(command=SOURCE, home=tmp_path)) as client:
            await client.shake_hands()
            (tool,) = (await client.result(legacy("tools/list")))["tools"]
            assert (tool["name"], tool["title"]) == ("getStation", "A station by its id")
            assert tool["annotations"]["readOnlyHint"] is True
            found = await client.result(legacy("tools/call", call("getStation", id="BE/1")))
            assert (found["isError"], found["structuredContent"]) == (False, {"name": "Bern"})
            lost = await client.result(legacy("tools/call", call("getStation", id="?")))
            assert (lost["isError"], lost["content"][0]["text"]) == (
                True,
                'The API answered 404: {"name": "Bern"}',
            )
            wrong = await client.result(legacy("tools/call", call("getStation", id=1)))
            assert wrong["content"][0]["text"].startswith("Invalid arguments.\nid: ")
            await client.hang_up()


def test_a_document_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "stations.yaml").write_text("openapi: 3.1.0\npaths: {}\npaths: {}\n", "utf-8")
    (tmp_path / "ostiary.toml").write_text(shown("toml"), "utf-8")
    done = Program(command=SOURCE, home=tmp_path).run("serve", "--stdio", code=1)
    assert "stations.yaml): cannot be read as YAML: line 3 has the key 'paths' a second time" in done.stderr
