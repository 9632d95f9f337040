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

AGENT = """
import asyncio
import pathlib
from ostiary import tool

@tool
async def waits(text: str) -> str:
    # Until the test says so, for all that run.
    while not pathlib.Path(text).exists():
        await asyncio.sleep(0.01)
    return "done"
"""
# Of each server: the two who call it in one era, and the two who do in the other.
CALLERS = ("one", "two", "three", "four")
ERAS = pytest.mark.parametrize(
    ("modern", "who", "other"),
    [(True, "one", "two"), (False, "three", "four")],
    ids=["2026", "handshake era"],
)


class Served:
    def __init__(self, program: Program, server: Server, admin: str, name: str) -> None:
        self.program = program
        self.server = server
        self.name = name
        self._admin = admin

    def at(self, name: str) -> Served:
        """Another server of the same process, with limits and callers of its own."""
        return Served(self.program, self.server, self._admin, name)

    def post(
        self, tool: str = "echo", *, text: object = "seen", who: str = "one", **more: Any
    ) -> httpx2.Response:
        arguments = {} if tool == "clock" else {"text": text}
        headers, body = request_of(tool, arguments, {}, modern=more.pop("modern", True))
        headers |= {"Authorization": f"Bearer {key(self.name, who)}"} if who else {}
        path = "/mcp" if self.name == "main" else f"/{self.name}/mcp"
        return self.send(path, "POST", content=body, headers=headers, **more)

    def plain(self, tool: str = "echo", *, who: str = "", **more: Any) -> httpx2.Response:
        headers = {"X-API-Key": key(self.name, who)} if who else {}
        return self.send(f"/{self.name}/call/{tool}", "POST", json={"text": "seen"}, headers=headers, **more)

    def send(
        self, path: str, method: str = "GET", *, source: str = "127.0.0.1", **more: Any
    ) -> httpx2.Response:
        transport = httpx2.HTTPTransport(local_address=source)
        with httpx2.Client(transport=transport, timeout=WAIT_SECONDS) as web:
            return web.request(method, self.server.url + path, **more)

    def result(self, tool: str = "echo", **more: Any) -> dict[str, Any]:
        answer = self.post(tool, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def metrics(self) -> str:
        return httpx2.get(f"{self._admin}/metrics", trust_env=False, timeout=WAIT_SECONDS).text

    def held_back(self, limit: str) -> int:
        found = re.search(
            rf'^ostiary_held_back_total{{limit="{limit}"}} (\S+)$', self.metrics(), re.MULTILINE
        )
        assert found is not None, self.metrics()
        return int(float(found[1]))

    def told(self, who: str) -> Any:
        """The row of `status` for somebody who was held back; in words it names those who were held back most."""
        rows = self.program.at_machine("status")["server"]["held_back"]
        words = self.program.run("status", "--data-dir", str(self.program.data_dir)).stdout
        first = rows[0]
        assert f"{first.get('name') or first['who']} {first['times']} × ({first['limit']})" in words
        (row,) = (row for row in rows if who in (row["who"], row.get("name")))
        return row


def key(name: str, who: str) -> str:
    return f"{name}-{who}-" * 4


def named(name: str, *, limits: str = "", tools: str = "", agent: str = 'kind = "demo"') -> str:
    """The settings of a server."""
    tokens = ", ".join(
        f'{{ name = "{name}-{who}", token = "file:{{home}}/{name}-{who}", scope = "mcp:tools" }}'
        for who in CALLERS
    )
    return f'[[server]]\nname = "{name}"\n{limits}\ntokens = [{tokens}]\n{tools}\n[[server.agent]]\n{agent}\n'


@contextmanager
def serving(home: Path, *servers: str, limits: str = "") -> Generator[Served]:
    (home / "agent.py").write_text(AGENT, "utf-8")
    settings = "".join([limits, *servers]).replace("{home}", str(home))
    (home / "ostiary.toml").write_text(settings, "utf-8")
    for name in re.findall(r'^name = "(.+)"$', settings, re.MULTILINE):
        for who in CALLERS:
            (home / f"{name}-{who}").touch(0o600)
            (home / f"{name}-{who}").write_text(key(name, who), "ascii")
    program = Program(command=SOURCE, home=home)
    options = ("--config", str(home / "ostiary.toml"), "--admin-port", "0")
    with program.serving(*options) as started:
        admin = started.await_words(r'"admin": ?"(http://[^"]+)"')[1]
        yield Served(program, started, admin, "main")


@pytest.fixture(scope="module")
def served(shared_home: Path) -> Generator[Served]:
    """A server for each kind of limit. That of an address is for all of them together: each test of it has one of its own."""
    with serving(
        shared_home,
        named("main"),
        named("often", limits='limits = { caller = "6/h, 3 at once" }'),
        named("crowded", limits="limits = { calls_at_once = 2 }", agent='kind = "python"\nfile = "agent.py"'),
        named("tool", tools='[server.tools.echo]\nlimit = "6/h, 2 at once"'),
        named("quota", limits='limits = { quota = "3/day" }'),
        named("exact", tools='[server.tools.echo]\nquota = "60/day"'),
        limits='[limits]\nloopback = true\naddress = "6/h, 3 at once"\n',
    ) as served:
        yield served


def text_of(result: Mapping[str, Any]) -> str:
    return result["content"][0]["text"]


# ── before anything is read ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_that_asks_too_often_is_told_to_wait_and_another_is_served(served: Served) -> None:
    here = "127.0.0.2"
    for _ in range(3):  # whoever shows nothing, or nothing good, is counted
        assert served.post(who="wrong", source=here).status_code == 401
    refused = served.post(who="wrong", source=here)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 600
    error = refused.json()["error"]
    assert (error["code"], error["data"]) == (1433, {"retryAfter": int(refused.headers["retry-after"])})
    assert "this address" in error["message"]
    # By plain HTTP it is the same address, and the form that is its own.
    plain = served.plain(source=here)
    assert (plain.status_code, plain.json()["error"]) == (429, "too_many_requests")
    assert served.post(who="wrong", source="127.0.0.3").status_code == 401
    # What is published for everybody, and what asks how we are, is never limited.
    for path in ("/.well-known/oauth-authorization-server", "/healthz"):
        for _ in range(10):
            assert served.send(path, source=here).status_code == 200
    assert served.held_back("address") == 2
    told = served.told(here)
    assert (told["who"], told["limit"], told["times"]) == (here, "address", 2)


def test_those_who_are_known_do_not_use_up_their_address(served: Served) -> None:
    for _ in range(8):
        assert text_of(served.result(source="127.0.0.4")) == "seen"
        assert text_of(served.result(who="two", source="127.0.0.4")) == "seen"


@ERAS
def test_a_caller_who_asks_too_often_is_told_to_wait_and_another_is_served(
    served: Served, modern: bool, who: str, other: str
) -> None:
    served = served.at("often")
    for _ in range(3):
        served.result(who=who, modern=modern)
    before = served.held_back("caller")
    refused = served.post(who=who, modern=modern)
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert error["code"] == 1433 and "requests of yours" in error["message"]
    assert refused.headers["retry-after"] == str(error["data"]["retryAfter"])
    served.result(who=other, modern=modern)
    assert served.held_back("caller") == before + 1
    told = served.told(f"often-{who}")  # as the owner knows it
    assert (told["who"].partition(":")[0], told["limit"], told["times"]) == ("api_key", "caller", 1)


def test_this_machine_is_not_counted_unless_the_owner_says_so(home: Path) -> None:
    limits = '[limits]\naddress = "1/min"\ncaller = "1/min"\ncalls_at_once = 1\n'
    with serving(home, named("main"), limits=limits) as served:
        for _ in range(5):
            served.result()
            assert served.post(who="").status_code == 401


@ERAS
def test_so_many_requests_of_a_caller_run_at_once_and_one_more_when_one_has_ended(
    served: Served, modern: bool, who: str, other: str
) -> None:
    served, go = served.at("crowded"), f"go-{who}"
    answers: list[httpx2.Response] = []

    def wait() -> None:
        # One that looks may have been there at the same moment, and then this one is asked to come again.
        answers.append(
            until("a place", lambda: _let_in(served.post("waits", text=go, who=who, modern=modern)))
        )

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        refused = until(
            "a refusal", lambda: _refused(served.post("waits", text=__file__, who=who, modern=modern))
        )
        error = refused.json()["error"]
        assert error["code"] == 1434 and error["message"].startswith("2 requests of yours")
        assert refused.headers["retry-after"] == "1"
        plain = served.plain("waits", who=who)
        assert (plain.status_code, plain.headers["retry-after"]) == (429, "1")
        served.result("waits", text=__file__, who=other, modern=modern)
    finally:
        (served.program.home / go).touch()
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    served.result("waits", text=__file__, who=who, modern=modern)


def _let_in(answer: httpx2.Response) -> httpx2.Response | None:
    return None if answer.status_code == 429 else answer


def _refused(answer: httpx2.Response) -> httpx2.Response | None:
    return answer if answer.status_code == 429 else None


# ── as an answer ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tool_that_is_called_too_often_says_so_and_the_others_go_on(served: Served) -> None:
    served = served.at("tool")
    for _ in range(2):
        served.result()
    before = served.held_back("tool")
    result = served.result()
    facts = result["_meta"]["io.ostiary/limit"]
    assert result["isError"] is True
    assert facts == {"limit": "tool", "retryAfter": facts["retryAfter"], "allowed": "6/h"}
    assert 1 <= facts["retryAfter"] <= 600
    # A model reads the words alone: which tool, how often, and when again.
    assert re.search(r"\becho\b.+\b6/h\b.+\bin \d+ minutes?\b", text_of(result))
    plain = served.plain(who="one")
    assert (plain.status_code, plain.json()["error"]) == (429, "too_many_requests")
    assert 1 <= int(plain.headers["retry-after"]) <= 600
    assert served.result("clock")["isError"] is False
    assert text_of(served.result(who="two")) == "seen"
    assert served.held_back("tool") == before + 2
    served.server.await_words('"event": ?"tool.limited"')


def test_a_quota_counts_calls_that_were_made_and_holds_over_a_restart_and_a_crash(home: Path) -> None:
    main = named("main", tools='[server.tools.echo]\nquota = "5/day"')
    with serving(home, main) as served:
        for text in ("one", "two", "three"):
            assert text_of(served.result(text=text)) == text
            assert served.result(text=7)["isError"] is True  # was not made: that is no text
    with serving(home, main) as served:
        assert text_of(served.result(text="four")) == "four"
        served.server.end(signal.SIGKILL)
    with serving(home, main) as served:
        assert text_of(served.result(text="five")) == "five"
        result = served.result(text="six")
        facts = result["_meta"]["io.ostiary/limit"]
        assert (facts["limit"], facts["allowed"]) == ("quota", "5/day")
        assert 0 < facts["retryAfter"] <= 86_400
        assert re.search(r"\b5 calls\b.+\becho\b.+\b00:00 UTC\b", text_of(result))
        assert text_of(served.result(who="two")) == "seen"


def test_a_quota_of_a_server_is_for_all_its_tools_together(served: Served) -> None:
    served = served.at("quota")
    assert [served.result(tool)["isError"] for tool in ("echo", "clock", "echo")] == [False] * 3
    result = served.result("clock")
    assert result["_meta"]["io.ostiary/limit"]["limit"] == "quota"
    assert "this server" in text_of(result)


def test_of_a_quota_that_many_ask_for_at_once_exactly_as_many_are_let_through(served: Served) -> None:
    served = served.at("exact")
    answers: list[bool] = []

    def call() -> None:
        answers.extend(served.result()["isError"] for _ in range(10))

    threads = [threading.Thread(target=call) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(answers) == {False: 60, True: 40}
