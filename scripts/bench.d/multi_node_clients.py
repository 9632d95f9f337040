"""Witnesses (durability_clients.py) of several servers that are one: what they do there, and how soon what one node has ended is ended at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Any

from caller import Answer, Caller, Lost
from cluster import Entrance, Node
from customers import IN_FLIGHT, INTERRUPTED, KEY, LOOK_SECONDS, reason_of, result_of
from durability_clients import (
    DAY_MS,
    NOBODY_THERE,
    OVER,
    RETRY_SECONDS,
    Book,
    Door,
    Keeper,
    Login,
    Newcomer,
    Refresher,
    Witness,
)

from server.admin.control import CommandRefused

ASKABLE: Mapping[str, Any] = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
TOO_MANY_TASKS = b"you have too many tasks"
RESTARTED = "the server was restarted while this was running"
TASK_SECONDS = 120.0  # within which one that was answered has ended, whatever happens to whom
PROBED_SECONDS = 20.0  # for so long an ended login is tried everywhere
PROBE_SECONDS = 0.05


class Asker(Witness):
    """Begins tasks that ask, answers wherever the answer comes to, and waits for their end: with an API key for as many tasks as one caller
    may have, and then with another."""

    def __init__(self, server: Door, dice: Random, over: Event, name: str) -> None:
        super().__init__(server, dice, over, name)
        self.books["questions"] = Book()
        self.interrupted = 0
        self.lost = 0
        self.longest = 0.0  # from the acknowledged answer to the end
        self._key, self._keys, self._number = "", 0, 0

    def settle(self) -> None:
        if self._key and not self.echoed(self._key, good=f"the key of {self.name}"):
            self.books["API keys"].missing.append(f"the key of {self.name} is not let in")

    def turn(self) -> None:
        if not self._key:
            self._key = self._made_key()
            return
        begun = self._begun()
        if begun is None:
            return
        book = self.books["questions"]
        name, task_id, doubt = begun
        book.in_doubt += doubt
        until, answered, colour = time.monotonic() + TASK_SECONDS, 0.0, f"colour {self._dice.random()}"
        while True:
            answer = self._asked("tasks/get", task_id)
            if answer.status == 401:  # which says nothing of the task
                self._key = ""
                return
            found = answer.json.get("result")
            if found is None:
                book.missing.append(f"the task of {name}: {answer.status} {answer.body[:200]!r}")
                return
            if found["status"] in OVER:
                break
            if found.get("inputRequests"):
                if answered:
                    book.missing.append(f"the answer to {name} was acknowledged, and it asks again")
                    return
                said = {
                    key: {"action": "accept", "content": {"colour": colour}} for key in found["inputRequests"]
                }
                if "result" in self._asked("tasks/update", task_id, inputResponses=said).json:
                    answered, until = time.monotonic(), time.monotonic() + TASK_SECONDS
            if time.monotonic() > until:
                book.missing.append(
                    f"{name} is {found['status']} after {TASK_SECONDS:.0f} seconds, answered {bool(answered)}"
                )
                return
            time.sleep(LOOK_SECONDS)
        if answered:
            self.longest = max(self.longest, time.monotonic() - answered)
        if found["status"] == "completed" and f"{name} was told {colour}" in str(found["result"]):
            book.acknowledged += 1
        elif found["status"] == "failed" and RESTARTED in str(found):
            self.interrupted += 1  # nobody knows how far it had come, and it says so
        else:
            book.missing.append(f"{name} has ended as {str(found)[:300]}")

    def _made_key(self) -> str:
        """Empty: nobody was there to make it, or to say so."""
        self._keys += 1
        book = self.books["API keys"]
        try:
            made = self.command("api_keys.make", {"name": f"{self.name}-{self._keys}", "lasts_ms": DAY_MS})
        except CommandRefused as refusal:
            book.in_doubt += not str(refusal).startswith(NOBODY_THERE)
            time.sleep(RETRY_SECONDS)
            return ""
        book.acknowledged += 1
        return made["key"]

    def _begun(self) -> tuple[str, str, int] | None:
        """One call with a key of its own, made until it is answered. None: there is no task of it."""
        self._number += 1
        name, doubts = f"{self.name}-{self._number}", 0
        call = {"name": "curious", "arguments": {"name": name}, "_meta": {KEY: f"key-{name}"}}
        while True:
            answer, doubt = self.surely(
                lambda: self._caller.call(
                    "tools/call", call, token=self._key, name="curious", capabilities=ASKABLE
                ),
                good=f"the key of {self.name}",
            )
            doubts += doubt
            if answer.status == 401:
                self._key = ""
                return None
            result = result_of(answer)
            if result.get("resultType") == "task":
                return name, result["taskId"], doubts
            if TOO_MANY_TASKS in answer.body:
                self._key = ""  # the next one is another caller's
                return None
            if reason_of(result) != IN_FLIGHT:
                break
            time.sleep(LOOK_SECONDS)
        if reason_of(result) == INTERRUPTED:
            self.lost += (
                1  # perhaps a task was begun, and nobody will ever ask for it; the next one has another key
            )
        else:
            self.books["questions"].missing.append(
                f"{name} was answered {answer.status}: {answer.body[:300]!r}"
            )
        return None

    def _asked(self, method: str, task_id: str, **more: Any) -> Answer:
        params = {"taskId": task_id, **more}
        answer, _ = self.surely(
            lambda: self._caller.call(method, params, token=self._key, name=task_id, capabilities=ASKABLE),
            good=f"the key of {self.name}",
        )
        return answer


class Canary(Refresher):
    """A `Refresher` of one node alone: how long it is that nothing can be written there."""

    def __init__(self, node: Node, entrance: Entrance, dice: Random, over: Event) -> None:
        super().__init__(Entrance([node], dice, entrance.tally), dice, over, f"canary-{node.name}")
        self.node = node
        self.acknowledged_at = time.monotonic()
        self.gap = 0.0

    def once(self, login: Login) -> None:
        super().once(login)
        now = time.monotonic()
        self.gap = max(self.gap, now - self.acknowledged_at)
        self.acknowledged_at = now

    def forget(self) -> None:
        """Nothing was to be done until now."""
        self.gap, self.acknowledged_at = 0.0, time.monotonic()


# ------------------------------------------------------------ what was ended


@dataclass(kw_only=True)
class Window:
    """While a node, or each of them, cannot hear what others do. `end` is set when it can."""

    node: str | None
    begin: float
    end: float | None = None
    what: str = ""


@dataclass(kw_only=True)
class Accepted:
    """A login that had been ended was let in: between these moments."""

    node: str
    ended: float
    sent: float
    answered: float
    what: str

    @property
    def late(self) -> float:
        return self.sent - self.ended


@dataclass(kw_only=True)
class Notices:
    """Logins and keys whose end was acknowledged, and where they were let in nevertheless."""

    ended: list[tuple[float, str, str]] = field(
        default_factory=list[tuple[float, str, str]]
    )  # when, id, token
    accepted: list[Accepted] = field(default_factory=list[Accepted])
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def end(self, what: str, token: str) -> None:
        with self.lock:
            self.ended.append((time.monotonic(), what, token))


class Known:
    """What is to be ended was used at each node before, so that each remembers it."""

    def __init__(self, entrance: Entrance, dice: Random) -> None:
        self._callers = [Caller(node.host, node.port, dice, seconds=2.0) for node in entrance.nodes]

    def everywhere(self, token: str) -> None:
        for caller in self._callers:
            with suppress(Lost):
                _echo(caller, token)


class Leaver(Newcomer):
    def __init__(self, entrance: Entrance, dice: Random, over: Event, name: str, notices: Notices) -> None:
        super().__init__(entrance, dice, over, name)
        self._notices, self._known, self._settling = notices, Known(entrance, dice), False

    def log_in(self) -> Login | None:
        login = super().log_in()
        if login is not None:
            self._known.everywhere(login.access_token)
        return login

    def settle(self) -> None:
        self._settling = True
        super().settle()

    def _see_ended(self, login: Login) -> None:
        if self._settling:
            super()._see_ended(login)
        else:
            self._notices.end(login.grant_id, login.access_token)


class KeyLeaver(Keeper):
    """The same with API keys."""

    def __init__(self, entrance: Entrance, dice: Random, over: Event, name: str, notices: Notices) -> None:
        super().__init__(entrance, dice, over, name)
        self._notices, self._known, self._settling = notices, Known(entrance, dice), False

    def settle(self) -> None:
        self._settling = True
        super().settle()

    def _end(self, key_id: str) -> None:
        self._known.everywhere(self.kept[key_id])
        super()._end(key_id)

    def _see_ended(self, key_id: str) -> None:
        if self._settling:
            super()._see_ended(key_id)
        else:
            self._notices.end(key_id, self.ended[key_id])


class Prober:
    """Tries at one node what was ended, as long as it may matter."""

    def __init__(self, node: Node, notices: Notices, dice: Random, over: Event) -> None:
        self.node, self.problem = node, None
        self._notices, self._over = notices, over
        self._caller = Caller(node.host, node.port, dice)

    def run(self) -> None:
        while not self._over.is_set():
            with self._notices.lock:
                horizon = time.monotonic() - PROBED_SECONDS
                while self._notices.ended and self._notices.ended[0][0] < horizon:
                    self._notices.ended.pop(0)
                # The youngest first: the others were tried before.
                tried = list(reversed(self._notices.ended))[:8]
            for ended, what, token in tried:
                self._try(ended, what, token)
            self._over.wait(PROBE_SECONDS)

    def _try(self, ended: float, what: str, token: str) -> None:
        sent = time.monotonic()
        try:
            status = _echo(self._caller, token).status
        except Lost:
            return
        with self._notices.lock:
            if status == 200:
                self._notices.accepted.append(
                    Accepted(
                        node=self.node.name, ended=ended, sent=sent, answered=time.monotonic(), what=what
                    )
                )  # fmt: skip
            else:
                self._notices.refused += 1


def _echo(caller: Caller, token: str) -> Answer:
    call = {"name": "echo", "arguments": {"text": "still here"}}
    return caller.call("tools/call", call, token=token, name="echo")
