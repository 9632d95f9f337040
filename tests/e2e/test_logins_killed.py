"""A server that is killed with SIGKILL at every step of a login, just before and just after each of its commits.

Whatever happens, a login whose tokens reached its program goes on, and no request makes a second one.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from handmade import CLI, Handmade
from person import Person
from programs import SOURCE, Program, Server

from tests.free_ports import free_port

pytestmark = pytest.mark.slow

MORTAL = Path(__file__).with_name("mortal_server.py")


@dataclass
class House:
    """A server that comes back under its old address, and the logins that were finished so far."""

    program: Program
    stack: ExitStack
    port: int
    client: Handmade
    owner: Person
    server: Server | None = None
    finished: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def start(self) -> None:
        self.server = self.stack.enter_context(self.program.serving("--port", str(self.port)))

    def killed_while(self, when: str, event: str, step: Callable[[], object], *, lost: int = 0) -> None:
        """`step` is answered by nobody; then the server is there again, and what was finished still works.

        `lost`: how many logins were made whose tokens nobody has.
        """
        assert self.server is not None
        order = self.program.home / "die"
        order.write_text(f"{when} {event}", "utf-8")
        with pytest.raises((httpx2.TransportError, AssertionError)):
            step()
        assert self.server.wait() == -signal.SIGKILL
        order.unlink()
        self.start()
        self.check(lost)

    def killed(self) -> None:
        assert self.server is not None
        assert self.server.end(signal.SIGKILL) == -signal.SIGKILL
        self.start()
        self.check()

    def finish(self, answer: httpx2.Response, client_id: str) -> None:
        assert answer.status_code == 200, answer.text
        self.finished.append({**answer.json(), "client_id": client_id})
        self.check()

    def refresh(self, login: dict[str, Any]) -> httpx2.Response:
        return self.client.refresh(login["refresh_token"], login["client_id"])

    def approve(self, codes: dict[str, Any]) -> None:
        self.owner.approve(codes["verification_uri_complete"])

    def check(self, lost: int = 0) -> None:
        """Each finished login is there once, with the token that its program has, and there are no others."""
        assert len(self.live()) == len(self.finished) + lost
        for login in self.finished:
            assert self.client.works(login["access_token"])

    def live(self) -> list[str]:
        """How each login that is in force came about."""
        with closing(sqlite3.connect(self.program.data_dir / "ostiary.db")) as connection:
            return [how for (how,) in connection.execute("SELECT how FROM grants WHERE revoked_at IS NULL")]


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    port = free_port()
    with ExitStack() as stack:
        client = Handmade(f"http://127.0.0.1:{port}")
        stack.callback(client.close)
        owner = Person()
        stack.callback(owner.close)
        program = Program(command=SOURCE, script=MORTAL, home=home)
        house = House(program=program, stack=stack, port=port, client=client, owner=owner)
        house.start()
        assert house.server is not None
        owner.claim(program, house.server)
        yield house


def by_device(house: House, when: str) -> None:
    client, approve = house.client, ("approve", "--yes", "--data-dir", str(house.program.data_dir))
    house.killed_while(when, "device.requested", client.ask_for_device)
    codes = client.ask_for_device()

    house.killed_while(when, "device.approved", lambda: house.program.run(*approve, codes["user_code"]))
    if when == "before":
        assert client.poll(codes["device_code"]).json()["error"] == "authorization_pending"
        house.approve(codes)
    else:  # what was decided stays decided
        house.program.run(*approve, codes["user_code"], code=1)
        house.killed()

    lost = int(when == "after")
    house.killed_while(when, "device.redeemed", lambda: client.poll(codes["device_code"]), lost=lost)
    answer = client.poll(codes["device_code"])
    if (
        when == "after"
    ):  # the login was made and its tokens are lost: it ends, and its person approves another
        assert answer.json()["error"] == "invalid_grant"
        house.check()
        codes = client.ask_for_device()
        house.approve(codes)
        answer = client.poll(codes["device_code"])
    house.finish(answer, CLI)


def by_browser(house: House, when: str) -> None:
    client = house.client
    house.killed_while(when, "client.registered", client.register)
    client_id = client.register(client_name=f"killed {when}")["client_id"]

    house.killed_while(when, "code.issued", lambda: client.agreed(house.owner, client_id))
    code = client.agreed(house.owner, client_id)["code"]
    if when == "after":
        house.killed()

    lost = int(when == "after")
    house.killed_while(when, "code.redeemed", lambda: client.redeem(client_id, code), lost=lost)
    answer = client.redeem(client_id, code)
    if when == "after":
        assert answer.json()["error"] == "invalid_grant"
        house.check()
        answer = client.redeem(client_id, client.agreed(house.owner, client_id)["code"])
    house.finish(answer, client_id)


def refreshed(house: House, when: str, login: dict[str, Any]) -> None:
    """Whether the rotation was committed or not, the program's second try gets it to the same place."""
    house.killed_while(when, "refresh.rotated", lambda: house.refresh(login))
    fresh = house.refresh(login)
    assert fresh.status_code == 200, fresh.text
    login.update(fresh.json())
    house.check()


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_of_a_login_what_was_finished_goes_on_and_nothing_is_made_twice(
    house: House, when: str
) -> None:
    by_device(house, when)
    by_browser(house, when)
    for login in house.finished:
        refreshed(house, when, login)
    house.killed()
    for login in house.finished:
        again = house.refresh(login)
        assert again.status_code == 200, again.text
        login.update(again.json())
    house.check()
    assert sorted(house.live()) == ["code", "device"]
    house.program.run(
        "verify", "--data-dir", str(house.program.data_dir)
    )  # the audit trail has no hole either
