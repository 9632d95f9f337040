"""People from the terminal, with real processes: invite, log in, ceilings, disable, lock, remove; sessions and their end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import httpx2
import pytest
from person import PASSPHRASE, Person
from programs import USER_CODE, WAIT_SECONDS, House, Program

pytestmark = pytest.mark.slow


SECRET = (("invite", "dora"), ("users", "reset", "olivia"), ("claim",))  # what shows a link


@pytest.fixture
def house(program: Program) -> Iterator[House]:
    """Serve each test anew: they ask who is there at all."""
    with program.serving() as server:
        yield House(program=program, server=server)


@pytest.fixture
def somebody() -> Iterator[Callable[[], Person]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Person()))


def come_in(person: Person, link: str, words: str = "Come in") -> httpx2.Response:
    page = person.browser.get(link)
    return person.press(page, words, {"passphrase": PASSPHRASE, "passphrase_again": PASSPHRASE})


def log_in_as(house: House, person: Person) -> None:
    """`ostiary login`, approved by this person in their browser."""
    program, server = house.program, house.server
    with program.starting("login", server.endpoint) as login:
        code = login.await_words(USER_CODE)[0]
        assert "Approved" in person.approve(f"{server.url}/device?user_code={code}").text
        assert login.wait() == 0, login.said()


def names(program: Program) -> dict[str, str]:
    return {user["name"]: user["state"] for user in program.at_machine("users", "list")}


def test_somebody_is_invited_logs_in_and_is_shut_out_step_by_step_without_a_restart(
    house: House, somebody: Callable[[], Person]
) -> None:
    program, server = house.program, house.server
    owner, bob = somebody(), somebody()
    owner.claim(program, server)
    before = time.time()
    bounds = ("--scope", "mcp:tools", "--account-expires", "30d", "--link-expires", "12h")
    made = program.at_machine("invite", "Bob", *bounds)
    assert made["link_expires_at"] / 1000 - before == pytest.approx(12 * 3600, abs=WAIT_SECONDS)
    assert made["expires_at"] / 1000 - before == pytest.approx(30 * 86_400, abs=WAIT_SECONDS)
    assert made["url"].startswith(f"{server.url}/invite/")
    assert (made["name"], made["scope"], made["state"]) == ("bob", "mcp:tools", "invited")
    assert "You are signed in" in come_in(bob, made["url"]).text
    assert bob.browser.get(made["url"]).status_code == 410
    assert names(program) == {"olivia": "enabled", "bob": "enabled"}

    log_in_as(house, bob)
    (login,) = program.at_machine("sessions", "--user", "bob")
    assert (login["user"], login["scope"], login["how"], login["standing"], login["usable"]) == (
        "bob",
        "mcp:tools",
        "device",
        "unverified",
        True,
    )
    assert program.at_machine("sessions", "--user", "olivia") == []
    assert program.ask("call", server.endpoint, "echo", "text=there")
    assert "rowan" not in owner.browser.get(f"{server.url}/account/access").text
    assert login["id"] in owner.browser.get(f"{server.url}/account/access").text

    program.at_machine("users", "set", "bob", "--tools", "none")
    program.run("call", server.endpoint, "echo", "text=hidden", code=1)
    program.at_machine("users", "set", "bob", "--tools", "all")
    program.run("call", server.endpoint, "echo", "text=there")
    program.at_machine("users", "disable", "bob")
    program.run("call", server.endpoint, "echo", "text=paused", code=1)
    assert program.at_machine("sessions")[0]["paused"] == "the account is disabled"
    assert "This account is disabled" in bob.browser.get(f"{server.url}/account/access").text
    program.at_machine("users", "enable", "bob")
    assert program.at_machine("sessions")[0]["usable"]

    where = ("--data-dir", str(program.data_dir))
    refused = program.run("users", "lock", "bob", *where, code=2)
    assert "lock bob, with 1 login and every key" in refused.stderr
    assert "hint: --yes goes ahead" in refused.stderr
    assert names(program)["bob"] == "enabled"
    program.at_machine("users", "lock", "bob", "--yes")
    assert program.at_machine("sessions") == []
    assert "Sign in" in bob.browser.get(f"{server.url}/account/access").text
    unlocked = program.at_machine("users", "unlock", "bob")
    assert unlocked["link"] == "reset"
    assert "Your passphrase was changed" in come_in(bob, unlocked["url"], "Set it").text
    program.at_machine("users", "remove", "bob", "--yes")
    assert names(program) == {"olivia": "enabled"}
    assert "Sign in" in bob.browser.get(f"{server.url}/account/access").text

    said = server.said()
    for secret in (made["url"], unlocked["url"]):
        assert secret.rpartition("/")[2] not in said, "no link is in the log"
    assert '"/invite/***"' in said and '"/reset/***"' in said


def test_logins_and_browsers_are_ended_by_id_by_person_and_all_together(
    house: House, somebody: Callable[[], Person]
) -> None:
    program, server = house.program, house.server
    owner = somebody()
    owner.claim(program, server)
    (browser,) = program.at_machine("sessions", "--browsers")
    assert (browser["user"], browser["user_agent"]) == ("olivia", "a person's browser")
    shown = program.run("sessions", "--browsers", "--data-dir", str(program.data_dir)).stdout
    assert "    a person's browser; used " in shown
    log_in_as(house, owner)
    (login,) = program.at_machine("sessions")
    assert program.at_machine("revoke", login["id"], browser["id"]) == {
        "ended": 2,
        "ids": [login["id"], browser["id"]],
    }
    assert "Sign in" in owner.browser.get(f"{server.url}/account/access").text
    program.run("call", server.endpoint, "echo", "text=ended", code=1)
    refused = program.run("revoke", login["id"], "--data-dir", str(program.data_dir), code=1)
    assert "there is no login" in refused.stderr

    program.log_in(server)
    asked = program.run("revoke", "--user", "olivia", "--data-dir", str(program.data_dir), code=2)
    assert "end 1 login" in asked.stderr
    assert len(program.at_machine("sessions")) == 1, "without a yes nothing is ended"
    assert program.at_machine("revoke", "--user", "olivia", "--yes") == {"ended": 1}
    program.log_in(server)
    assert program.at_machine("revoke", "--client", login["client_id"], "--yes") == {"ended": 1}
    program.log_in(server)
    assert program.at_machine("revoke", "--all", "--yes") == {"ended": 1}
    assert program.at_machine("sessions") == []

    program.at_machine("api-keys", "create", "ci")
    for arguments in (["--all"], ["--user", "olivia"]):
        told = program.run("revoke", *arguments, "--yes", "--data-dir", str(program.data_dir))
        assert "1 API key goes on" in told.stderr, "a key is no login, and whoever ends logins is told"


def test_what_cannot_be_done_is_said_with_a_next_step(house: House, somebody: Callable[[], Person]) -> None:
    program, server = house.program, house.server
    at = ("--data-dir", str(program.data_dir))
    somebody().claim(program, server)
    program.at_machine("invite", "carol")
    for arguments, words in (
        (("users", "remove", "olivia", "--yes"), "olivia is the only owner and cannot be removed"),
        # Where the answer is no, nobody is asked.
        (("users", "remove", "olivia"), "olivia is the only owner and cannot be removed"),
        (("users", "lock", "olivia"), "olivia is the only owner and cannot be locked"),
        (("users", "lock", "carol"), "carol has not joined yet and cannot be locked"),
        (("users", "disable", "olivia"), "olivia is the only owner and cannot be disabled"),
        (
            ("users", "set", "olivia", "--expires", "1d"),
            "olivia is the only owner and cannot be given an end",
        ),
        (("users", "disable", "carol"), "carol has not joined yet and cannot be disabled"),
        (("users", "show", "ghost"), "there is nobody called ghost"),
        (("users", "set", "carol", "--scope", "root"), "scope: there is no “root”"),
        (("users", "set", "carol", "--tools", "a b!"), "selection of tools"),
        (("invite", "olivia", "--json"), "there is somebody called olivia already"),
        (("invite", "a b", "--json"), "a name is made of letters"),
        (("sessions", "--user", "ghost"), "there is nobody called ghost"),
        (("revoke", "--user", "ghost", "--yes"), "there is nobody called ghost"),
    ):
        refused = program.run(*arguments, *at, code=1)
        assert words in refused.stderr, (arguments, refused.stderr)
    for arguments in (
        ("revoke",),
        ("revoke", "--all", "grt_x"),
        ("users", "set", "carol"),
        ("users", "remove", "carol"),  # nobody to be asked, and no --yes
        ("invite", "dora"),  # no terminal: a link would end up who knows where
        ("users", "reset", "olivia"),
        ("claim",),
        ("invite", "dora", "--account-expires", "5x", "--json"),
        ("invite", "dora", "--link-expires", "31d", "--json"),
        ("invite", "dora", "--link-expires", "721h", "--json"),
    ):
        refused = program.run(*arguments, *at, code=2)
        assert ("--json prints it" in refused.stderr) == (arguments in SECRET), arguments
    assert names(program) == {"olivia": "enabled", "carol": "invited"}
