"""Limits of the running program, over real connections: each 429, what a model is told, and a quota over restarts and a crash."""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_calls import request_of
from programs import SOURCE, WAIT_SECONDS, Program, Server, until

from tests.free_ports import free_port

AGENT = """
import asyncio
import pathlib
from ostiary import tool

@tool
async def look(text: str = "") -> str:
    return "seen"

@tool
async def count(number: int) -> str:
    return str(number)

@tool
async def waits(text: str = "") -> str:
    # Until the test says so, for all that run.
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return "done"
"""
KEYS = ("one", "two")
SETTINGS = """
{limits}
[[server]]
name = "main"
{server}
tokens = [
  {{ name = "one", token = "file:one", scope = "mcp:tools" }},
  {{ name = "two", token = "file:two", scope = "mcp:tools" }},
]
{tools}
[[server.agent]]
kind = "python"
file = "agent.py"
"""


class Served:
    def __init__(self, program: Program, server: Server, admin: int) -> None:
        self.program = program
        self.server = server
        self._admin = admin

    def post(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, who: str = "one", **more: Any
    ) -> httpx2.Response:
        headers, body = request_of(tool, arguments or {}, {}, modern=more.pop("modern", True))
        headers |= {"Authorization": f"Bearer {who * 12}"} if who else {}
        transport = httpx2.HTTPTransport(local_address=more.pop("source", "127.0.0.1"))
        with httpx2.Client(transport=transport, timeout=WAIT_SECONDS) as web:
            return web.post(self.server.endpoint, content=body, headers=headers)

    def result(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        answer = self.post(tool, arguments, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def metrics(self) -> str:
        return httpx2.get(
            f"http://127.0.0.1:{self._admin}/metrics", trust_env=False, timeout=WAIT_SECONDS
        ).text

    def held_back(self, limit: str) -> int:
        found = re.search(
            rf'^ostiary_held_back_total{{limit="{limit}"}} (\S+)$', self.metrics(), re.MULTILINE
        )
        assert found is not None, self.metrics()
        return int(float(found[1]))


@contextmanager
def serving(home: Path, *, limits: str = "", server: str = "", tools: str = "") -> Generator[Served]:
    (home / "agent.py").write_text(AGENT, "utf-8")
    settings = SETTINGS.format(limits=limits, server=server, tools=tools)
    (home / "ostiary.toml").write_text(settings.replace("file:", f"file:{home}/"), "utf-8")
    for name in KEYS:
        (home / name).write_text(name * 12, "ascii")
        (home / name).chmod(0o600)
    admin = free_port()
    program = Program(command=SOURCE, home=home)
    options = ("--config", str(home / "ostiary.toml"), "--admin-port", str(admin))
    with program.serving(*options) as started:
        yield Served(program, started, admin)


def text_of(result: Mapping[str, Any]) -> str:
    return result["content"][0]["text"]


# ── before anything is read ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_that_asks_too_often_is_told_to_wait_and_another_is_served(home: Path) -> None:
    with serving(home, limits='[limits]\nloopback = true\naddress = "6/h, 3 at once"') as served:
        for _ in range(3):  # whoever shows nothing, or nothing good, is counted
            assert served.post("look", who="wrong").status_code == 401
        refused = served.post("look", who="wrong")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 600
        error = refused.json()["error"]
        assert (error["code"], error["data"]) == (1433, {"retryAfter": int(refused.headers["retry-after"])})
        assert error["message"].startswith("too many requests from this address: try again in ")
        # By plain HTTP it is the same address, and the form that is its own.
        plain = httpx2.post(
            f"{served.server.url}/main/call/look", json={}, trust_env=False, timeout=WAIT_SECONDS
        )
        assert (plain.status_code, plain.json()["error"]) == (429, "too_many_requests")
        assert served.post("look", who="wrong", source="127.0.0.2").status_code == 401
        # What is published for everybody, and what asks how we are, is never limited.
        for path in ("/.well-known/oauth-authorization-server", "/healthz"):
            for _ in range(10):
                assert (
                    httpx2.get(served.server.url + path, trust_env=False, timeout=WAIT_SECONDS).status_code
                    == 200
                )
        assert served.held_back("address") == 2
        (told,) = served.program.at_machine("status")["server"]["held_back"]
        assert (told["who"], told["limit"], told["times"]) == ("127.0.0.1", "address", 2)
        words = served.program.run("status", "--data-dir", str(served.program.data_dir)).stdout
        assert "127.0.0.1 2 × (address)" in words


def test_those_who_are_known_do_not_use_up_their_address(home: Path) -> None:
    with serving(home, limits='[limits]\nloopback = true\naddress = "6/h, 2 at once"') as served:
        for _ in range(8):
            assert text_of(served.result("look")) == "seen"
            assert text_of(served.result("look", who="two")) == "seen"


@pytest.mark.parametrize("modern", [True, False], ids=["2026", "handshake era"])
def test_a_caller_who_asks_too_often_is_told_to_wait_and_another_is_served(home: Path, modern: bool) -> None:
    with serving(home, limits='[limits]\nloopback = true\ncaller = "6/h, 3 at once"') as served:
        for _ in range(3):
            served.result("look", modern=modern)
        refused = served.post("look", modern=modern)
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert error["code"] == 1433 and error["message"].startswith(
            "too many requests of yours: try again in "
        )
        assert refused.headers["retry-after"] == str(error["data"]["retryAfter"])
        served.result("look", who="two", modern=modern)
        assert served.held_back("caller") == 1
        (told,) = served.program.at_machine("status")["server"]["held_back"]
        assert told["who"].startswith("api_key:") and told["name"] == "one", "as the owner knows it"
        words = served.program.run("status", "--data-dir", str(served.program.data_dir)).stdout
        assert "one 1 × (caller)" in words


def test_this_machine_is_not_counted_unless_the_owner_says_so(home: Path) -> None:
    limits = '[limits]\naddress = "1/min"\ncaller = "1/min"\ncalls_at_once = 1'
    with serving(home, limits=limits) as served:
        for _ in range(5):
            served.result("look")
            assert served.post("look", who="").status_code == 401


@pytest.mark.parametrize("modern", [True, False], ids=["2026", "handshake era"])
def test_so_many_requests_of_a_caller_run_at_once_and_one_more_when_one_has_ended(
    home: Path, modern: bool
) -> None:
    with serving(home, limits="[limits]\nloopback = true\ncalls_at_once = 2") as served:
        answers: list[httpx2.Response] = []

        def wait() -> None:
            # A look may have been there at the same moment, and then this one is asked to come again.
            answers.append(until("a place", lambda: _let_in(served.post("waits", modern=modern))))

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        refused = until("a refusal", lambda: _refused(served.post("look", modern=modern)))
        assert refused.json()["error"] == {
            "code": 1434,
            "message": "2 requests of yours are running: wait for one of them to end",
        }
        assert refused.headers["retry-after"] == "1"
        plain = httpx2.post(
            f"{served.server.url}/main/call/look",
            json={},
            headers={"X-API-Key": "one" * 12},
            trust_env=False,
            timeout=WAIT_SECONDS,
        )
        assert (plain.status_code, plain.headers["retry-after"]) == (429, "1")
        served.result("look", who="two", modern=modern)
        (home / "go").touch()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200, 200]
        served.result("look", modern=modern)


def _let_in(answer: httpx2.Response) -> httpx2.Response | None:
    return None if answer.status_code == 429 else answer


def _refused(answer: httpx2.Response) -> httpx2.Response | None:
    return answer if answer.status_code == 429 else None


# ── as an answer ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tool_that_is_called_too_often_says_so_and_the_others_go_on(home: Path) -> None:
    with serving(home, tools='[server.tools.look]\nlimit = "6/h, 2 at once"') as served:
        for _ in range(2):
            served.result("look")
        result = served.result("look")
        facts = result["_meta"]["io.ostiary/limit"]
        assert result["isError"] is True
        assert facts == {"limit": "tool", "retryAfter": facts["retryAfter"], "allowed": "6/h"}
        assert 1 <= facts["retryAfter"] <= 600
        assert re.fullmatch(
            r"This call was not made: you have called look too often, 6/h is the limit\. Call it again in \d+ minutes?;"
            r" until then calls of it are refused like this one\.",
            text_of(result),
        )
        plain = httpx2.post(
            f"{served.server.url}/main/call/look",
            json={},
            headers={"X-API-Key": "one" * 12},
            trust_env=False,
            timeout=WAIT_SECONDS,
        )
        assert (plain.status_code, plain.json()["error"]) == (429, "too_many_requests")
        assert 1 <= int(plain.headers["retry-after"]) <= 600
        assert text_of(served.result("count", {"number": 1})) == "1"
        assert text_of(served.result("look", who="two")) == "seen"
        assert served.held_back("tool") == 2
        served.server.await_words('"event": ?"tool.limited"')


def test_a_quota_counts_calls_that_were_made_and_holds_over_a_restart_and_a_crash(home: Path) -> None:
    tools = '[server.tools.count]\nquota = "5/day"'
    with serving(home, tools=tools) as served:
        for number in range(3):
            assert text_of(served.result("count", {"number": number})) == str(number)
            assert served.result("count", {"number": "no number"})["isError"] is True  # was not made
    with serving(home, tools=tools) as served:
        assert text_of(served.result("count", {"number": 4})) == "4"
        served.server.end(signal.SIGKILL)
    with serving(home, tools=tools) as served:
        assert text_of(served.result("count", {"number": 5})) == "5"
        result = served.result("count", {"number": 6})
        facts = result["_meta"]["io.ostiary/limit"]
        assert (facts["limit"], facts["allowed"]) == ("quota", "5/day")
        assert 0 < facts["retryAfter"] <= 86_400
        assert "your 5 calls a day of count are used up. There are new ones at 00:00 UTC, in " in text_of(
            result
        )
        assert text_of(served.result("count", {"number": 1}, who="two")) == "1"


def test_a_quota_of_a_server_is_for_all_its_tools_together(home: Path) -> None:
    with serving(home, server='limits = { quota = "3/day" }') as served:
        assert [served.result(tool)["isError"] for tool in ("look", "look", "look")] == [False] * 3
        result = served.result("count", {"number": 1})
        assert "your 3 calls a day at this server are used up" in text_of(result)


def test_of_a_quota_that_many_ask_for_at_once_exactly_as_many_are_let_through(home: Path) -> None:
    with serving(home, tools='[server.tools.look]\nquota = "60/day"') as served:
        answers: list[bool] = []

        def call() -> None:
            answers.extend(served.result("look")["isError"] for _ in range(10))

        threads = [threading.Thread(target=call) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(answers) == {False: 60, True: 40}
