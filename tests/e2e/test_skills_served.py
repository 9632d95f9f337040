"""An agent that is a document, served as its format's own server serves it: the document of the page about it, by itself and by the settings that the page shows."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64decode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from programs import ROOT, SOURCE, WAIT_SECONDS, Program, needed
from test_serve_stdio import piped

from tests.stdio_talk import call, legacy, modern, note, texts

PAGE = (ROOT / "docs" / "from" / "agent-3md.md").read_text("utf-8")


def shown(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "agent.3md").write_text(shown("3md"), "utf-8")
    return Program(command=SOURCE, home=tmp_path)


@pytest.mark.parametrize("configured", [False, True], ids=["a document alone", "ostiary.toml"])
async def test_a_client_of_agent_3md_lists_routes_gets_and_resolves(
    program: Program, configured: bool
) -> None:
    if configured:
        (program.home / "ostiary.toml").write_text(shown("toml"), "utf-8")
    async with piped(program, *([] if configured else ["agent.3md"])) as client:
        hello = await client.result(legacy("initialize", {"protocolVersion": "2024-11-05"}, id="hands"))
        assert (hello["protocolVersion"], hello["serverInfo"]) == (
            "2024-11-05",
            {"name": "agent-3md:dev", "version": "0.1.0"},
        )
        await client.say(note("initialized"))
        said = [
            await client.result(legacy("tools/call", asked))
            for asked in (
                call("list_skills"),
                call("route_skill", text="find every TODO"),
                call("get_skill", name="search"),
                call("resolve_skill", name="search"),
            )
        ]
        listed, routed, got, resolved = texts(said)
        assert [skill["name"] for skill in json.loads(listed)] == ["search", "files"]
        assert routed == "search  (score 2; matched: find, todo)"
        assert got.startswith("# search\n\nLook for a regular expression")
        assert resolved.startswith(f"### search\n{got}\n\n### files\n# files\n")
        await client.say("not an object")
        assert (await client.hear())["error"]["code"] == -32600
        unknown = legacy("tools/call", call("open_skill"), id=9)
        await client.say(unknown)
        assert (await client.hear())["error"]["code"] == -32602
        await client.hang_up()
    log = (program.home / "stderr").read_text("utf-8")
    line = f"[agent-3md mcp] dev: 2 skills from {program.home / 'agent.3md'}\n"
    assert log.startswith(line) is not configured


@pytest.mark.parametrize("form", [modern, legacy])
async def test_a_folder_of_skills_is_listed_by_the_protocols_own_extension_with_files_that_are_what_it_says(
    program: Program, form: Callable[..., dict[str, Any]]
) -> None:
    for name in ("notes", "release"):
        folder = program.home / "skills" / name
        (folder / "data").mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Writes {name}.\nlicense: MIT\nmetadata:\n  n: one\n---\nRead data/a.csv.\r\n"
        (folder / "SKILL.md").write_bytes(text.encode())
        (folder / "data" / "a.csv").write_bytes(b"\xff\x00,1\n")
    (program.home / "ostiary.toml").write_text(
        '[[server]]\npage_size = 1\n[[server.agent]]\nkind = "skills"\npath = "skills"\n', "utf-8"
    )
    async with piped(program) as client:
        await client.shake_hands()
        found: list[Any] = []
        asked: dict[str, Any] = {}
        while True:
            page = await client.result(form("skills/list", asked, id="list"))
            assert ("ttlMs" in page, "cacheScope" in page, page.get("resultType")) == (
                (True, True, "complete") if form is modern else (False, False, None)
            )
            found += page["skills"]
            if "nextCursor" not in page:
                break
            asked = {"cursor": page["nextCursor"]}
        assert [skill["uri"] for skill in found] == ["skill://notes/SKILL.md", "skill://release/SKILL.md"]
        assert found[0]["frontmatter"] == {
            "name": "notes",
            "description": "Writes notes.",
            "license": "MIT",
            "metadata": {"n": "one"},
        }
        for file in found[0]["resources"]:
            read = await client.result(form("resources/read", {"uri": file["uri"]}, id="read"))
            (content,) = read["contents"]
            data = content["text"].encode() if "text" in content else b64decode(content["blob"])
            assert (len(data), f"sha256:{sha256(data).hexdigest()}") == (file["size"], file["digest"])
        assert [file["uri"] for file in found[0]["resources"]] == [
            "skill://notes/SKILL.md",
            "skill://notes/data/a.csv",
        ]
        got = await client.result(form("skills/get", {"uri": found[1]["uri"]}, id="get"))
        assert got["skill"] == found[1]
        await client.say(form("skills/get", {"uri": "skill://other/SKILL.md"}, id="none"))
        assert (await client.hear())["error"]["code"] == -32602
        discovered = await client.result(modern("server/discover", id="about"))
        assert discovered["capabilities"]["extensions"]["io.modelcontextprotocol/skills"] == {}
        await client.hang_up()


@pytest.mark.peers
@pytest.mark.slow
def test_a_client_of_others_lists_gets_and_checks_them(program: Program) -> None:
    for name in ("notes", "release"):
        folder = program.home / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Writes {name}.\n---\nDo it.\n", "utf-8"
        )
        (folder / "logo.bin").write_bytes(b"\xff\x00")
    python = needed(ROOT / ".venvs" / "fastmcp" / "bin" / "python", "scripts/peers python")
    with program.serving("skills", "--auth", "none") as server:
        done = subprocess.run(
            [str(python), str(ROOT / "tests" / "peers" / "fastmcp_skills.py"), server.endpoint],
            env=program.environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        f"skill://{name}/SKILL.md": [f"skill://{name}/SKILL.md", f"skill://{name}/logo.bin"]
        for name in ("notes", "release")
    }


async def test_a_document_has_no_skills_of_that_extension(program: Program) -> None:
    async with piped(program, "agent.3md") as client:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        welcome = await client.result(legacy("initialize", hello, id="hands"))
        assert "extensions" not in welcome["capabilities"]
        await client.say(note("initialized"), legacy("skills/list", id=1))
        assert (await client.hear())["error"]["code"] == -32601
        await client.hang_up()


async def test_a_message_of_nine_mebibytes_is_read_and_one_of_eleven_is_refused(program: Program) -> None:
    async with piped(program, "agent.3md") as client:
        await client.shake_hands()
        long = await client.result(
            legacy("tools/call", call("route_skill", text="find " + "x" * (9 * 1024 * 1024)))
        )
        assert texts([long]) == ["search  (score 1; matched: find)"]
        await client.say(legacy("tools/call", call("route_skill", text="x" * (11 * 1024 * 1024))))
        assert (await client.hear())["error"]["code"] == -32600
        await client.hang_up()


def test_a_document_is_served_over_http_without_settings(program: Program) -> None:
    with program.starting(
        "serve", "agent.3md", "--port", "0", "--auth", "none", "--data-dir", str(program.data_dir)
    ) as server:
        url = server.await_words(r"Listening on (http://\S+)")[1]
        server.await_words("2 skills from")
        called = program.run("call", f"{url}/mcp", "route_skill", "text=find it")
        assert called.stdout == "search  (score 1; matched: find)\n"
        assert server.end() == 0
