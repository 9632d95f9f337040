"""What one caller of low rank can do to the memory of a server, kind by kind, each to a server of its own that was just started: its
resident memory before, at its peak, and afterwards, against what memory_bound.py says.
"""

from __future__ import annotations

import json
import re
import secrets
import select
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import memory_bound
from memory_bound import LIMITS, MIB
from targets import Broken, Running, Target, free_port, ostiary_source, running
from wire import call_parts, exchange, open_connection, request

AT_ONCE = 16  # calls, and so connections
CHARACTERS = 1_900_000  # just below the largest body
DEPTH = 50  # of lists in lists, which is what takes the most memory
THINGS = CHARACTERS // len("[]" * DEPTH + ",")
LISTS, LISTS_AT_ONCE = 8, 4  # an agent in Python needs seconds for each
ANSWER_CHARACTERS = 3_000_000
SETTLE_SECONDS = 2.0
POLL_SECONDS = 0.1
ANSWER_SECONDS = 120.0
MAKING_SECONDS = 60.0  # in which the agent makes all answers of readers who stall
# A reader is cut when it has taken nothing for so long, as the reaper sees it, or sooner for the sake of others.
CUT_SECONDS = MAKING_SECONDS + LIMITS.write_stall_seconds + 2 * LIMITS.tick_seconds
FULL = frozenset({429, 503})
TASKS: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
FORMS: Mapping[str, Any] = {"elicitation": {}}
OVER = frozenset({"completed", "failed", "cancelled"})
# What is kept of one's tasks fills after some 130 of them, and two have room for all that is large at once.
CALLERS = 4


class Caller:
    """Machines with a token each that lets them call tools, and nothing else."""

    def __init__(self, server: Running, tokens: list[str], admin: int) -> None:
        self.server = server
        self._tokens = tokens
        self._admin = admin

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
        """When there is room for it."""
        message = self.message(method, params, **more)
        while True:
            with open_connection(self.server.host, self.server.port) as connection:
                connection.settimeout(ANSWER_SECONDS)
                status, body, _ = exchange(connection, message)
            if status not in FULL:
                return json.loads(body)
            time.sleep(POLL_SECONDS)

    def metric(self, name: str) -> int:
        with open_connection("127.0.0.1", self._admin) as connection:
            asked = request("127.0.0.1", self._admin, "GET", "/metrics", {"Connection": "close"})
            _, body, _ = exchange(connection, asked)
        found = re.search(rf"^ostiary_{name} ([\d.e+]+)$", body.decode(), re.MULTILINE)
        if not found:
            raise Broken(f"there is no metric {name}")
        return int(float(found[1]))


class Kind(NamedTuple):
    name: str
    do: Callable[[Caller], str | None]  # → what became of it, where that is no foregone conclusion
    bound: int


def kinds(calls: int, readers: int) -> tuple[Kind, ...]:
    text, large, kept = memory_bound.of_text(AT_ONCE), memory_bound.of_large(), memory_bound.KEPT_BYTES
    return (
        Kind(f"{calls} tasks that ended", partial(_many, calls, _task), text + kept),
        Kind(f"{calls} tools that failed", partial(_many, calls, _failing), text + kept),
        Kind(f"{calls} questions that were declined", partial(_many, calls, _declined), text + kept),
        Kind(f"{calls} questions that nobody could be asked", partial(_many, calls, _unasked), text + kept),
        Kind(f"{LISTS} arguments of lists in lists", partial(_many, LISTS, _spread, at_once=LISTS_AT_ONCE), large + kept),
        Kind(f"{calls} calls that are never answered", partial(_flood, calls, _text), large + kept),
        Kind(f"{calls} such calls with lists in lists", partial(_flood, calls, _lists), large + kept),
        Kind(
            f"{readers} readers that stall",
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
            told = kind.do(caller)
            time.sleep(SETTLE_SECONDS)
            after, peak = server.resident_kib() * 1024, server.peak_kib() * 1024
        bad = peak - before > kind.bound or after - before > memory_bound.KEPT_BYTES
        kept = kept and not bad
        print(
            f"{f'{kind.name}: {told}' if told else kind.name:55} {before / MIB:8.1f} {peak / MIB:8.1f} {after / MIB:8.1f} {(before + kind.bound) / MIB:8.1f}"
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
        settings, admin = folder / "ostiary.toml", free_port()
        settings.write_text("\n".join(lines), "utf-8")
        command = (
            *ostiary_source(), "serve", "--port", "0", "--admin-port", str(admin), "--config", str(settings),
            "--data-dir", str(folder / "data"), "--log-level", "error",
        )  # fmt: skip
        with running(Target(name="Ostiary", command=command), core=0) as server:
            yield Caller(server, tokens, admin)


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


def _lists(number: int) -> list[Any]:
    """Others each time, to some extent."""
    thing: list[Any] = []
    for _ in range(DEPTH - 1):
        thing = [thing]
    return [thing] * (THINGS - number % 10)


def _spread(caller: Caller, number: int) -> None:
    caller.say("tools/call", {"name": "weigh_all", "arguments": {"what": _lists(number)}}, caller=number)


def _flood(count: int, what: Callable[[int], Any], caller: Caller) -> str:
    """As many as may connect wait at the same time, and then leave. An agent that has much to read may give up some of them."""
    server = caller.server
    params = {"name": "keep", "arguments": {"what": what(0)}}
    messages = [caller.message("tools/call", params, caller=number) for number in range(CALLERS)]
    with ExitStack() as connections:
        waiting: list[socket.socket] = []
        refused = 0
        for number in range(count):
            connection = connections.enter_context(open_connection(server.host, server.port))
            _offer(connection, messages[number % CALLERS])
            waiting.append(connection)
        said, before = Counter[int](), None
        until = time.monotonic() + ANSWER_SECONDS
        while said != before or sum(said[status] for status in FULL) != refused:
            if time.monotonic() > until or said.keys() - FULL - {200}:
                raise Broken(f"of {count} calls {refused} were refused, and so many answered: {dict(said)}")
            time.sleep(SETTLE_SECONDS)
            before, refused = said, caller.metric("large_requests_refused_total")
            answered, _, _ = select.select(waiting, [], [], 0)
            said = Counter(map(_status, answered))
    until = time.monotonic() + ANSWER_SECONDS
    while caller.metric("large_requests_bytes"):
        if time.monotonic() > until:
            raise Broken("calls whose callers have left keep their room")
        time.sleep(POLL_SECONDS)
    return f"{count - refused} found room"


def _offer(connection: socket.socket, message: bytes) -> None:
    """Send it, or as much of it as is taken: whoever is refused is told so while it still sends."""
    try:
        connection.sendall(message)
    except (BrokenPipeError, ConnectionResetError, TimeoutError):
        return


def _status(connection: socket.socket) -> int:
    start = connection.recv(64, socket.MSG_PEEK).split(b" ", 2)
    return int(start[1]) if len(start) == 3 else 0


def _stall(count: int, caller: Caller) -> str:
    """As many as may connect ask for a large answer each, and none reads it. Whoever is told that the agent is busy has an answer
    that is small, and is not cut."""
    server = caller.server
    asked = caller.message("tools/call", {"name": "talk", "arguments": {"characters": ANSWER_CHARACTERS}})
    with ExitStack() as held:
        connections: list[socket.socket] = []
        for _ in range(count):
            connection = held.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((server.host, server.port))
            connection.sendall(asked)
            connections.append(connection)
        deadline = time.monotonic() + CUT_SECONDS
        while (cut := caller.metric("connections_stalled_total")) + sum(map(_is_small, connections)) < count:
            if time.monotonic() > deadline:
                raise Broken(f"of {count} readers that stall {cut} were cut after {CUT_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
    if not cut:
        raise Broken("nobody had an answer that is large enough to be cut")
    return f"{cut} were cut"


def _is_small(connection: socket.socket) -> bool:
    """Whether the whole of an answer is there."""
    try:
        data = connection.recv(4096, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except (BlockingIOError, ConnectionResetError):
        return False
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\ncontent-length: (\d+)", head)
    return length is not None and int(length[1]) <= len(body)
