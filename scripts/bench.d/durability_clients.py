"""Clients of a server that is killed again and again. Each remembers what was acknowledged to it, and looks for that ever after.

A request that was not answered is in doubt: it happened, or it did not, and either is right. What a client does then is what ours
does: it asks again. Nothing here looks into the database; accounts.py does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, Protocol

from caller import NOT_NOW, Answer, Caller, Lost, Unheard
from logins import DEVICE_CODE
from targets import Broken

from server.admin import control
from server.admin.control import CommandRefused

CLI = {"client_id": "ostiary-cli"}
TASKS: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CHAIN = re.compile(r"rt\d+\.(grt_[a-z2-7]+)\.(\d+)\.")
RETRY_SECONDS = 0.02
TOO_OFTEN = 429
# Of MCP, where a request that is refused has been answered nevertheless.
NOT_NOW_WORDS = (b'"message":"tasks are not available: ', b'"reason":"temporarily_unavailable"')
PAUSE_SECONDS = 0.01  # between two refreshes of one chain, so that no witness keeps the others from theirs
DAY_MS = 86_400_000
NOBODY_THERE = "no server is running"  # so the command line says it where its command was not even sent
OVER = frozenset({"completed", "failed", "cancelled"})
MOST_LIVING = 8  # tasks of one witness: each caller may have so many
MOST_KEPT = 100  # logins of one witness: of a person's 500 the one unused for longest makes room, and all of these are one person's


@dataclass(kw_only=True)
class Book:
    """What became of one kind of thing. `missing` and `doubled` are sentences."""

    acknowledged: int = 0
    in_doubt: int = 0
    missing: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])


# Requests with a login or a key that nobody has ended: each is let in, or asked to come again.
GOOD = "let in"
NOUNS = ("logins", "refreshes", "revocations", "API keys", "API keys ended", "tasks", GOOD)


@dataclass(kw_only=True)
class Login:
    grant_id: str
    counter: int
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)


class Door(Protocol):
    """What witnesses come to: a server, or several of which each does what the others do."""

    @property
    def data(self) -> Path:
        """Of one that is asked at its machine."""
        ...

    def caller(self, dice: Random) -> Caller: ...


class Witness:
    def __init__(self, server: Door, dice: Random, over: Event, name: str) -> None:
        self.books = {noun: Book() for noun in NOUNS}
        self.lost_logins = 0  # redeemed, and the answer did not arrive: they end when the code is shown again
        self.problem: BaseException | None = None
        self.name = name
        self._server, self._dice, self._over = server, dice, over
        self._caller = server.caller(dice)
        self.between: Callable[[], None] = lambda: None  # called when nothing is under way

    def run(self) -> None:
        """For a thread."""
        try:
            while not self._over.is_set():
                self.between()
                self.turn()
        except BaseException as problem:  # told by whoever started the thread
            self.problem = problem
        finally:
            self._caller.close()

    def turn(self) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """The server is up for the last time: is everything there that was acknowledged?"""
        raise NotImplementedError

    # ------------------------------------------------------------ asking

    def surely(self, ask: Callable[[], Answer], *, good: str = "") -> tuple[Answer, int]:
        """An answer, however often it takes, and how many tries before it may have been done without a word. `good`: the id of the
        login or key that is shown, if nobody has ended it."""
        doubt = 0
        while True:
            try:
                answer = ask()
            except Unheard:
                pass
            except Lost:
                doubt += 1
            else:
                if not is_not_now(answer):
                    self._note_entry(good, answer)
                    return answer, doubt
                # "The server is stopping", or a write that it had to give up: done or not, nobody says.
                doubt += answer.status != TOO_OFTEN
            time.sleep(RETRY_SECONDS)

    def _note_entry(self, good: str, answer: Answer) -> None:
        if good and answer.status != 401:
            self.books[GOOD].acknowledged += 1
        elif good:
            self.books[GOOD].missing.append(
                f"{good} of {self.name} was answered 401 by {answer.node} at {time.strftime('%H:%M:%S')}:"
                f" {answer.body[:200]!r}"
            )

    def command(self, name: str, arguments: dict[str, Any]) -> Any:
        """One command at the machine. Raises `CommandRefused`, also when nobody is there to answer."""
        return control.ask(self._server.data, name, arguments).result

    def echoed(self, token: str, *, good: str = "") -> bool:
        """Whether it is let in with this; `good` as for `surely`."""
        call = {"name": "echo", "arguments": {"text": self.name}}
        answer, _ = self.surely(
            lambda: self._caller.call("tools/call", call, token=token, name="echo"), good=good
        )
        if answer.status not in (200, 401):
            raise Broken(f"a call was answered {answer.status}: {answer.body[:300]!r}")
        return answer.status == 200

    def poll(self, device_code: str) -> tuple[Answer, int]:
        form = {**CLI, "grant_type": DEVICE_CODE, "device_code": device_code}
        return self.surely(lambda: self._caller.form("/token", form))

    def refresh(self, token: str) -> tuple[Answer, int]:
        form = {**CLI, "grant_type": "refresh_token", "refresh_token": token}
        return self.surely(lambda: self._caller.form("/token", form))

    # ------------------------------------------------------------ logging in

    def log_in(self) -> Login | None:
        """By a code that is approved at the machine. None: it was made, and its tokens are lost."""
        book = self.books["logins"]
        asked, _ = self.surely(lambda: self._caller.form("/device_authorization", CLI))
        if asked.status != 200:
            raise Broken(f"/device_authorization answered {asked.status}: {asked.body[:300]!r}")
        codes = asked.json
        approved = self._approve(codes["user_code"])
        doubt = 0
        while True:
            answer, lost = self.poll(codes["device_code"])
            doubt += lost
            if answer.status == 200:
                break
            match answer.error():
                case "authorization_pending" | "slow_down":
                    if approved:
                        book.missing.append("an approval")
                    approved = self._approve(codes["user_code"])
                case "invalid_grant" if doubt:
                    book.in_doubt += 1
                    self.lost_logins += 1
                    return None
                case _:
                    book.missing.append(f"a device code: {answer.body[:200]!r}")
                    return None
        book.in_doubt += doubt
        book.acknowledged += 1
        return read_login(answer)

    def _approve(self, user_code: str) -> bool:
        """Whether that was acknowledged."""
        try:
            found = self.command("find", {"code": user_code})
            self.command("approve", {"id": found["id"]})
        except (
            CommandRefused
        ):  # nobody there; or an approval that was not acknowledged is done: polling tells
            time.sleep(RETRY_SECONDS)
            return False
        return True


class Refresher(Witness):
    """One login, whose refresh token is used as soon as it is there."""

    login: Login | None = None

    def turn(self) -> None:
        if self.login is None:
            self.login = self.log_in()
            return
        self.once(self.login)
        time.sleep(PAUSE_SECONDS)

    def settle(self) -> None:
        if self.login is not None:
            self.once(self.login)
            if not self.echoed(self.login.access_token, good=self.login.grant_id):
                self.books["logins"].missing.append(f"{self.login.grant_id} is not let in")

    def once(self, login: Login) -> None:
        book = self.books["refreshes"]
        answer, doubt = self.refresh(login.refresh_token)
        book.in_doubt += doubt
        if answer.status != 200:
            book.missing.append(f"{login.grant_id}, token {login.counter}: {answer.body[:200]!r}")
            self.login = None
            return
        renewed = read_login(answer)
        book.acknowledged += 1
        if renewed.counter > login.counter + 1:
            book.doubled.append(f"{login.grant_id} went from {login.counter} to {renewed.counter}")
        elif renewed.counter <= login.counter or renewed.grant_id != login.grant_id:
            book.missing.append(f"{login.grant_id} went from {login.counter} to {renewed.counter}")
        self.login = renewed


class Newcomer(Witness):
    """Logs in, again and again, and ends every second login; every one, when it has kept as many as it may."""

    def __init__(self, server: Door, dice: Random, over: Event, name: str) -> None:
        super().__init__(server, dice, over, name)
        self.kept: list[Login] = []
        self.ended: list[Login] = []

    def turn(self) -> None:
        login = self.log_in()
        if login is None:
            return
        if len(self.kept) < MOST_KEPT and self._dice.random() < 0.5:
            self.kept.append(login)
            return
        form = {**CLI, "token": login.refresh_token}
        answer, doubt = self.surely(lambda: self._caller.form("/revoke", form))
        if answer.status != 200:
            raise Broken(f"/revoke answered {answer.status}: {answer.body[:300]!r}")
        self.books["revocations"].in_doubt += doubt
        self.books["revocations"].acknowledged += 1
        self.ended.append(login)
        self._see_ended(login)

    def settle(self) -> None:
        for login in self.kept:
            if not self.echoed(login.access_token, good=login.grant_id):
                self.books["logins"].missing.append(f"{login.grant_id} is not let in")
        for login in self.ended:
            self._see_ended(login)

    def _see_ended(self, login: Login) -> None:
        if self.echoed(login.access_token):
            self.books["revocations"].missing.append(f"{login.grant_id} is let in")
        if self.refresh(login.refresh_token)[0].status == 200:
            self.books["revocations"].missing.append(f"{login.grant_id} was refreshed")


class Keeper(Witness):
    """Makes API keys, and ends every second one."""

    def __init__(self, server: Door, dice: Random, over: Event, name: str) -> None:
        super().__init__(server, dice, over, name)
        self.kept: dict[str, str] = {}  # id → key
        self.ended: dict[str, str] = {}
        self._made = 0

    def turn(self) -> None:
        self._made += 1
        order = {"name": f"{self.name}-{self._made}", "lasts_ms": DAY_MS}
        try:
            key = self.command("api_keys.make", order)
        except CommandRefused as refusal:
            # The next one has another name. Where nobody was there to hear of this one, it is not in doubt.
            self.books["API keys"].in_doubt += not str(refusal).startswith(NOBODY_THERE)
            time.sleep(RETRY_SECONDS)
            return
        self.books["API keys"].acknowledged += 1
        self.kept[key["id"]] = key["key"]
        self._see_kept(key["id"])
        if self._dice.random() < 0.5:
            self._end(key["id"])

    def settle(self) -> None:
        names = [key["name"] for key in self.command("api_keys", {})]
        for name in {name for name in names if names.count(name) > 1}:
            self.books["API keys"].doubled.append(name)
        for key_id in self.kept:
            self._see_kept(key_id)
        for key_id in self.ended:
            self._see_ended(key_id)

    def _end(self, key_id: str) -> None:
        book, doubt = self.books["API keys ended"], False
        while True:
            try:
                self.command("api_keys.revoke", {"id": key_id})
                break
            except CommandRefused as refusal:
                if "to revoke" in str(refusal):  # there is none any more
                    if not doubt:
                        self.books["API keys"].missing.append(key_id)
                    break
                doubt = doubt or not str(refusal).startswith(NOBODY_THERE)
                time.sleep(RETRY_SECONDS)
        book.in_doubt += doubt
        book.acknowledged += 1
        self.ended[key_id] = self.kept.pop(key_id)
        self._see_ended(key_id)

    def _see_kept(self, key_id: str) -> None:
        if not self.echoed(self.kept[key_id], good=key_id):
            self.books["API keys"].missing.append(f"{key_id} is not let in")

    def _see_ended(self, key_id: str) -> None:
        if self.echoed(self.ended[key_id]):
            self.books["API keys ended"].missing.append(f"{key_id} is let in")


class Tasker(Witness):
    """Begins tasks, and looks at those that it began."""

    login: Login | None = None

    def __init__(self, server: Door, dice: Random, over: Event, name: str) -> None:
        super().__init__(server, dice, over, name)
        self.begun: list[str] = []
        self.living: set[str] = set()
        self.completed: dict[str, str] = {}  # what they said
        self._asked = 0

    def turn(self) -> None:
        if self.login is None:
            self.login = self.log_in()
        elif not self.begun or (len(self.living) < MOST_LIVING and self._dice.random() < 0.1):
            self._begin(self.login)
        else:
            self._look(self.login, self._dice.choice(self.begun))

    def settle(self) -> None:
        if self.login is not None:
            login = self.login
            for task_id in list(self.begun):
                self._look(login, task_id)

    def _begin(self, login: Login) -> None:
        def ask() -> Answer:
            self._asked += 1  # each try is another task, and has a name of its own
            call = {"name": "steps", "arguments": {"name": f"{self.name}-{self._asked}"}}
            return self._caller.call(
                "tools/call", call, token=login.access_token, name="steps", capabilities=TASKS
            )

        answer, doubt = self.surely(ask, good=login.grant_id)
        self.books["tasks"].in_doubt += doubt
        if answer.status == 401:
            self._begin_anew()
            return
        result = answer.json.get("result", {})
        if result.get("resultType") == "complete" and not result["isError"]:
            return  # as many are kept of this caller as may be: it was a plain call
        if result.get("resultType") != "task":
            raise Broken(f"no task was begun: {answer.status} {answer.body[:300]!r}")
        self.books["tasks"].acknowledged += 1
        self.begun.append(result["taskId"])
        self.living.add(result["taskId"])

    def _begin_anew(self) -> None:
        """Log in again: that login is not let in any more, and what it began is nobody else's."""
        self.login = None
        self.begun.clear()
        self.living.clear()

    def _look(self, login: Login, task_id: str) -> None:
        asked = {"taskId": task_id}
        answer, _ = self.surely(
            lambda: self._caller.call(
                "tasks/get", asked, token=login.access_token, name=task_id, capabilities=TASKS
            ),
            good=login.grant_id,
        )
        if answer.status == 401:  # which says nothing of the task
            self._begin_anew()
            return
        found = answer.json.get("result")
        if found is None:
            self.books["tasks"].missing.append(f"{answer.status} {answer.body[:200]!r}")
            return
        said = str(found.get("result", {}).get("content"))
        before = self.completed.get(task_id)
        if before is not None and (found["status"], said) != ("completed", before):
            self.books["tasks"].missing.append(f"a result: {found['status']} {said}, before {before}")
        if found["status"] in OVER:
            self.living.discard(task_id)
        if found["status"] == "completed":
            self.completed[task_id] = said


def settle(witnesses: Iterable[Witness]) -> list[str]:
    """Have each look at everything once more; a sentence for each that could not go on. That is a fault to be told, and keeps none of
    the others from being heard."""
    failed: list[str] = []
    for witness in witnesses:
        try:
            if witness.problem is None:
                witness.settle()
        except Exception as problem:
            witness.problem = problem
        if witness.problem is not None:
            failed.append(f"{witness.name}: {witness.problem!r}")
    return failed


def is_not_now(answer: Answer) -> bool:
    """It was not done, or nobody knows, and may be asked again: by its status, or by its words."""
    return answer.status in NOT_NOW or any(words in answer.body for words in NOT_NOW_WORDS)


def sum_books(witnesses: Iterable[Witness]) -> dict[str, Book]:
    """Of all of them, by noun."""
    sums: dict[str, Book] = {}
    for witness in witnesses:
        for noun, book in witness.books.items():
            total = sums.setdefault(noun, Book())
            total.acknowledged += book.acknowledged
            total.in_doubt += book.in_doubt
            total.missing += book.missing
            total.doubled += book.doubled
    return sums


def read_login(answer: Answer) -> Login:
    tokens = answer.json
    found = CHAIN.match(tokens["refresh_token"])
    if found is None:
        raise Broken("a refresh token has another form than it had")
    return Login(
        grant_id=found[1],
        counter=int(found[2]),
        access_token=tokens["access_token"],
        refresh_token=tokens["refresh_token"],
    )
