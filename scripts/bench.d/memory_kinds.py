"""What one caller of low rank can do to the memory of a server, kind by kind, each to a server of its own that was just started: its
resident memory before, at its peak, and afterwards, against what memory_bound.py says.
"""

from __future__ import annotations

import json
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import memory_bound
from memory_bound import MIB
from targets import Broken, Running, Target, ostiary_source, running, sockets_of
from wire import call_parts, exchange, open_connection, request

AT_ONCE = 16  # calls, and so connections
CHARACTERS = 1_900_000  # just below the largest body
DEPTH = 50  # of lists in lists, which is what takes the most memory
THINGS = CHARACTERS // len("[]" * DEPTH + ",")
LISTS, LISTS_AT_ONCE = 8, 4  # an agent in Python needs seconds for each
ANSWER_CHARACTERS = 3_000_000
CUT_SECONDS = (
    110.0  # stalled readers are cut long before; who was told that all is busy stays as an idle connection
)
SETTLE_SECONDS = 2.0
POLL_SECONDS = 0.1
TASKS: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
FORMS: Mapping[str, Any] = {"elicitation": {}}
OVER = frozenset({"completed", "failed", "cancelled"})
CALLERS = 4  # of tasks: what is kept of one caller's fills after some 130 of them


class Caller:
    """Machines with a token each that lets them call tools, and nothing else."""

    def __init__(self, server: Running, tokens: list[str]) -> None:
        self.server = server
        self._tokens = tokens

    def message(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: int = 0,
        can: Mapping[str, Any] | None = None,
    ) -> bytes:
        name = str(params.get("name", params.get("taskId", "")))
        headers, body = call_parts(
            method, params, name=name, token=self._tokens[caller % len(self._tokens)], capabilities=can
        )
        return request(self.server.host, self.server.port, "POST", "/mcp", headers, body)

    def say(self, method: str, params: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The result of a call, on a connection of its own. Raises `Broken` for an error."""
        answer = self.answer(method, params, **more)
        if "result" not in answer:
            raise Broken(f"{method} was answered {json.dumps(answer)[:300]}")
        return answer["result"]

    def answer(self, method: str, params: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        with open_connection(self.server.host, self.server.port) as connection:
            connection.settimeout(CUT_SECONDS)
            _, body, _ = exchange(connection, self.message(method, params, **more))
        return json.loads(body)


class Kind(NamedTuple):
    name: str
    do: Callable[[Caller], None]
    bound: int


def kinds(calls: int, readers: int) -> tuple[Kind, ...]:
    text, spread = memory_bound.of_calls(AT_ONCE), memory_bound.of_calls(LISTS_AT_ONCE, spread=True)
    kept = memory_bound.KEPT_BYTES
    return (
        Kind(f"{calls} tasks that ended", partial(_many, calls, _task), text + kept),
        Kind(f"{calls} tools that failed", partial(_many, calls, _failing), text + kept),
        Kind(f"{calls} questions that were declined", partial(_many, calls, _declined), text + kept),
        Kind(f"{calls} questions that nobody could be asked", partial(_many, calls, _unasked), text + kept),
        Kind(f"{LISTS} arguments of lists in lists", partial(_many, LISTS, _spread, at_once=LISTS_AT_ONCE), spread + kept),
        Kind(
            f"{readers} readers that stall until they are cut",
            partial(_stall, readers),
            memory_bound.of_answers() + kept,
        ),
    )  # fmt: skip


def look(calls: int, readers: int) -> bool:
    """Prints the table. → whether each kind stayed within its bound, at its peak and afterwards."""
    kept = True
    print(
        f"\n{'MiB of a server that was just started':55} {'before':>8} {'peak':>8} {'after':>8} {'bound':>8}"
    )
    for kind in kinds(calls, readers):
        with _serving() as caller:
            server = caller.server
            caller.say("tools/call", {"name": "talk", "arguments": {"characters": 1}})
            before = server.resident_kib() * 1024
            kind.do(caller)
            time.sleep(SETTLE_SECONDS)
            after, peak = server.resident_kib() * 1024, server.peak_kib() * 1024
        bad = peak - before > kind.bound or after - before > memory_bound.KEPT_BYTES
        kept = kept and not bad
        print(
            f"{kind.name:55} {before / MIB:8.1f} {peak / MIB:8.1f} {after / MIB:8.1f} {(before + kind.bound) / MIB:8.1f}"
            f"{'  BEYOND THE BOUND' if bad else ''}",
            flush=True,
        )
    print(
        f"bounds: at the peak as shown, afterwards {memory_bound.KEPT_BYTES // MIB} MiB above before:"
        f" {'kept' if kept else 'FAILED'}"
    )
    return kept


@contextmanager
def _serving() -> Generator[Caller]:
    """A server with the agent beside this file, and its callers' tokens."""
    with tempfile.TemporaryDirectory(prefix="ostiary-leaks-") as name:
        folder, tokens = Path(name), [secrets.token_urlsafe(32) for _ in range(CALLERS)]
        lines = ["[[server]]", 'accepts = ["api-key"]', "tokens = ["]
        for number, token in enumerate(tokens):
            kept = folder / f"token-{number}"
            kept.write_text(token, "ascii")
            kept.chmod(0o600)
            lines.append(f'  {{ name = "caller-{number}", token = "file:{kept}", scope = "mcp:tools" }},')
        agent = Path(__file__).with_name("memory_agent.py")
        lines += ["]", "[[server.agent]]", 'kind = "python"', f'file = "{agent}"']
        lines.append(f'python = "{ostiary_source()[0]}"')
        settings = folder / "ostiary.toml"
        settings.write_text("\n".join(lines), "utf-8")
        command = (
            *ostiary_source(), "serve", "--port", "0", "--config", str(settings),
            "--data-dir", str(folder / "data"), "--log-level", "error",
        )  # fmt: skip
        with running(Target(name="Ostiary", command=command), core=0) as server:
            yield Caller(server, tokens)


def _many(count: int, one: Callable[[Caller, int], None], caller: Caller, *, at_once: int = AT_ONCE) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(one, caller, number) for number in range(count)]:
            done.result()


def _text(number: int) -> str:
    """Another one each time."""
    return f"{number:010}" + "x" * (CHARACTERS - 10)


def _task(caller: Caller, number: int) -> None:
    params = {"name": "weigh_as_task", "arguments": {"what": _text(number)}}
    task = caller.say("tools/call", params, caller=number, can=TASKS)
    if task["resultType"] != "task":
        raise Broken(f"no task was made: {json.dumps(task)[:300]}")
    while task["status"] not in OVER:
        time.sleep(POLL_SECONDS)
        task = caller.say("tasks/get", {"taskId": task["taskId"]}, caller=number, can=TASKS)
    if task["status"] != "completed":
        raise Broken(f"a task ended so: {json.dumps(task)[:300]}")


def _failing(caller: Caller, number: int) -> None:
    result = caller.say("tools/call", {"name": "fail", "arguments": {"what": _text(number)}})
    if not result.get("isError"):
        raise Broken(f"what had to fail did not: {json.dumps(result)[:300]}")


def _declined(caller: Caller, number: int) -> None:
    params = {"name": "ask", "arguments": {"what": _text(number)}}
    paused = caller.say("tools/call", params, can=FORMS)
    answers = {key: {"action": "decline"} for key in paused["inputRequests"]}
    again = {**params, "requestState": paused["requestState"], "inputResponses": answers}
    result = caller.say("tools/call", again, can=FORMS)
    if "decline" not in json.dumps(result):
        raise Broken(f"a question was not declined: {json.dumps(result)[:300]}")


def _unasked(caller: Caller, number: int) -> None:
    answer = caller.answer("tools/call", {"name": "ask", "arguments": {"what": _text(number)}})
    if "error" not in answer:
        raise Broken(f"who cannot be asked was: {json.dumps(answer)[:300]}")


def _spread(caller: Caller, number: int) -> None:
    thing: list[Any] = []
    for _ in range(DEPTH - 1):
        thing = [thing]
    arguments = {"what": [thing] * (THINGS - number % 10)}
    caller.say("tools/call", {"name": "weigh_all", "arguments": arguments})


def _stall(count: int, caller: Caller) -> None:
    """As many as may connect ask for a large answer each, and none reads it."""
    server = caller.server
    asked = caller.message("tools/call", {"name": "talk", "arguments": {"characters": ANSWER_CHARACTERS}})
    before = sockets_of(server.pid)
    with ExitStack() as held:
        for _ in range(count):
            connection = held.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((server.host, server.port))
            connection.sendall(asked)
        deadline = time.monotonic() + CUT_SECONDS
        time.sleep(SETTLE_SECONDS)  # until there is something to be read
        while sockets_of(server.pid) > before:
            if time.monotonic() > deadline:
                raise Broken("readers that stall are not cut")
            time.sleep(POLL_SECONDS)
