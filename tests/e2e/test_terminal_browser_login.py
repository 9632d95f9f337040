"""`ostiary login --browser` against the real server: a person signs in, says yes, and the terminal has its login."""

from __future__ import annotations

import html
import json
import re

import httpx2
from programs import WAIT_SECONDS, House, Program, claim_in_browser, expire_access_token

from tests.sealing import write_to_file

PASSPHRASE = "a passphrase of some length"
LINK = re.compile(r"http://\S+/authorize\?\S+")
FORM = re.compile(r'<form method="post"([^>]*)>.*?</form>', re.DOTALL)
FIELD = re.compile(r'<input type="(?:hidden|checkbox)" name="([^"]+)" value="([^"]*)"')
ACTION = re.compile(r'action="([^"]*)"')


def submitted(browser: httpx2.Client, page: httpx2.Response, which: str, **typed: str) -> httpx2.Response:
    """The form of a page that is called, or leads, so: sent as it came, with what is typed."""
    form = next(found for found in FORM.finditer(page.text) if which in found[1])
    action = ACTION.search(form[1])
    assert action is not None
    fields = {name: html.unescape(value) for name, value in FIELD.findall(form[0])}
    origin = str(page.url.copy_with(path="/", query=None)).rstrip("/")
    target = page.url.join(html.unescape(action[1]))
    return browser.post(target, data={**fields, **typed}, headers={"Origin": origin})


def allowed(link: str, decision: str = "allow") -> httpx2.Response:
    """What a person does with the link: sign in, read, allow. The page where the browser ends."""
    with httpx2.Client(follow_redirects=True, trust_env=False, timeout=60) as browser:
        page = submitted(browser, browser.get(link), "/signin", name="olivia", passphrase=PASSPHRASE)
        assert "Ostiary in a terminal" in page.text
        return submitted(browser, page, 'id="allow"', decision=decision)


def test_a_person_logs_in_through_a_browser_calls_refreshes_and_logs_out(house: House) -> None:
    program, server = house.program, house.server
    claim_in_browser(program.at_machine("claim")["url"], PASSPHRASE)
    with program.starting("login", server.endpoint, "--no-browser") as login:
        page = allowed(login.await_words(LINK)[0])
        assert "You can close this page" in page.text
        assert page.url.path == "/callback"
        assert login.wait() == 0, login.said()
    kept = program.tokens()
    assert (kept["client_id"], kept["client_secret"]) == ("ostiary-cli", None)
    assert program.ask("tools", server.endpoint)["tools"]
    me = program.ask("whoami", server.endpoint)
    assert me["account"]["user"] == {"name": "olivia", "role": "owner"}
    assert me["account"]["credential"]["how"] == "code"
    expire_access_token(program)
    assert program.ask("whoami", server.endpoint)["state"] == "accepted"
    assert program.tokens()["refresh_token"] != kept["refresh_token"]
    assert program.ask("logout", server.endpoint)["revoked"] is True
    assert program.at_machine("sessions") == []


def test_doctor_finds_both_ways_to_log_in_and_leaves_nothing_in_the_audit_trail(house: House) -> None:
    program, server = house.program, house.server
    before = program.at_machine("audit")
    steps = {step["step"]: step for step in program.ask("doctor", server.endpoint)["steps"]}
    assert (steps["device login"]["state"], steps["browser login"]["state"]) == ("ok", "ok")
    assert steps["browser login"]["detail"] == "offered with PKCE, registration, documents, iss"
    assert program.at_machine("audit") == before


def test_doctor_finds_what_of_a_browser_login_is_off(program: Program) -> None:
    with program.serving("--registration", "off", "--client-documents", "off") as server:
        steps = {step["step"]: step for step in program.ask("doctor", server.endpoint)["steps"]}
        assert steps["browser login"] == {
            "step": "browser login",
            "state": "ok",
            "detail": "offered with PKCE, iss",
            "hint": None,
        }


def test_the_status_of_a_machine_counts_who_is_known_and_waits(program: Program) -> None:
    nobody = program.run("status", "--data-dir", str(program.data_dir), code=1)
    assert "none" in nobody.stdout
    with program.serving() as server:
        before = program.at_machine("status")["server"]
        assert (before["people"], before["unclaimed"], before["logins"]) == (0, True, 0)
        claim_in_browser(program.at_machine("claim")["url"], PASSPHRASE)
        program.log_in(server)
        with program.starting("login", server.endpoint) as waiting:
            waiting.await_words("approve this code")
            status = program.at_machine("status")
            shown = program.run("status", "--data-dir", str(program.data_dir)).stdout
        found = status["server"]
        assert (found["people"], found["unclaimed"], found["logins"], found["waiting"]) == (1, False, 1, 1)
        assert [(login["url"], login["state"]) for login in status["logins"]] == [(server.endpoint, "fresh")]
        assert "1 person, 1 login\n" in shown
        assert "1 login for approval\n" in shown
        assert all(len(line) <= 80 for line in shown.splitlines() if str(program.home) not in line)


def test_a_database_of_an_older_version_lets_the_terminal_in_through_a_browser_too(program: Program) -> None:
    with program.serving():
        pass
    write_to_file(
        program.data_dir,
        "UPDATE clients SET grant_types = 'urn:ietf:params:oauth:grant-type:device_code refresh_token',"
        " redirect_uris = '' WHERE id = 'ostiary-cli'",
    )
    with program.serving() as server:
        (client,) = [each for each in program.at_machine("clients", "list") if each["id"] == "ostiary-cli"]
        assert "authorization_code" in json.dumps(client["grant_types"])
        metadata = httpx2.get(
            f"{server.url}/.well-known/oauth-authorization-server", trust_env=False, timeout=WAIT_SECONDS
        ).json()
        assert metadata["ostiary_client_id"] == "ostiary-cli"
