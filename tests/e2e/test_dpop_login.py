"""`ostiary login --dpop`: the whole terminal with a login that is bound to a key, against a running server."""

from __future__ import annotations

import base64
import json
import stat

import httpx2
import pytest
from programs import USER_CODE, WAIT_SECONDS, House, Program, expire_access_token

pytestmark = pytest.mark.slow


def test_a_bound_login_calls_bridges_refreshes_and_its_tokens_are_worth_nothing_elsewhere(
    house: House,
) -> None:
    program, server = house.program, house.server
    with program.starting("login", server.endpoint, "--dpop") as login:
        user_code = login.await_words(USER_CODE)[0]
        program.at_machine("approve", user_code, "--yes")
        assert login.wait() == 0, login.said()
    kept = program.tokens()
    payload = kept["access_token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert list(claims["cnf"]) == ["jkt"]
    assert stat.S_IMODE(program.token_file.stat().st_mode) == 0o600

    assert "hello" in program.run("call", server.endpoint, "echo", "text=hello").stdout
    assert program.ask("whoami", server.endpoint)["state"] == "accepted"
    expire_access_token(program)
    assert "again" in program.run("call", server.endpoint, "echo", "text=again").stdout
    renewed = program.tokens()
    assert renewed["refresh_token"] != kept["refresh_token"]
    assert renewed["proof_key"] == kept["proof_key"]

    refused = program.run("token", server.endpoint, code=1)
    assert refused.stdout == ""
    assert "bound to a key" in refused.stderr
    assert f"ostiary login {server.endpoint}" in refused.stderr
    with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as thief:
        for scheme in ("Bearer", "DPoP"):
            stolen = {"Authorization": f"{scheme} {renewed['access_token']}"}
            assert thief.post(server.endpoint, headers=stolen, json={}).status_code == 401
        form = {
            "grant_type": "refresh_token",
            "refresh_token": renewed["refresh_token"],
            "client_id": "ostiary-cli",
        }
        assert thief.post(server.url + "/token", data=form).json()["error"] == "invalid_grant"
    # None of that has ended the login of the key's owner.
    expire_access_token(program)
    assert "still" in program.run("call", server.endpoint, "echo", "text=still").stdout
    for secret in (kept["proof_key"], renewed["access_token"], renewed["refresh_token"]):
        assert secret not in server.said()
    assert program.ask("logout", server.endpoint)["revoked"] is True


def test_a_bound_login_goes_on_as_soon_as_the_server_was_started_again(program: Program) -> None:
    with program.serving() as server:
        with program.starting("login", server.endpoint, "--dpop") as login:
            program.at_machine("approve", login.await_words(USER_CODE)[0], "--yes")
            assert login.wait() == 0, login.said()
        assert "before" in program.run("call", server.endpoint, "echo", "text=before").stdout
    with program.serving("--port", server.url.rpartition(":")[2]) as again:
        assert again.endpoint == server.endpoint
        # Any proof may have been used at the process before: this one asks for a nonce, and nobody is troubled with it.
        assert "after" in program.run("call", again.endpoint, "echo", "text=after").stdout
        assert program.ask("whoami", again.endpoint)["state"] == "accepted"


def test_the_next_login_without_a_key_gives_scripts_their_token_again(house: House) -> None:
    program, server = house.program, house.server
    with program.starting("login", server.endpoint, "--dpop") as login:
        program.at_machine("approve", login.await_words(USER_CODE)[0], "--yes")
        assert login.wait() == 0, login.said()
    program.log_in(server)
    assert program.tokens()["proof_key"] is None
    token = program.run("token", server.endpoint).stdout.strip()
    with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as script:
        shown = {"Authorization": f"Bearer {token}"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert script.post(server.endpoint, headers=shown, json=ping).status_code == 200
