"""What real clients were seen to do, and to break on: each habit once over real sockets, as its program has it.

The programs themselves are in test_clients_log_in.py and test_mcp_remote.py; here is what they leave to chance, or do only when
something else went wrong before.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from handmade import CALLBACK, CLI, DEVICE_CODE, MCP_HEADERS, Handmade, basic, landed
from person import Person
from programs import SOURCE, WAIT_SECONDS, Program, Server

pytestmark = pytest.mark.slow

FORM = "application/x-www-form-urlencoded"
NAMES = ("127.0.0.1", "localhost", "[::1]")
CLAUDE_CODE = "https://claude.ai/oauth/claude-code-client-metadata"
RESOURCE = "/.well-known/oauth-protected-resource"


@dataclass(kw_only=True)
class House:
    program: Program
    server: Server
    owner: Person
    client: Handmade

    @property
    def port(self) -> int:
        port = urlsplit(self.server.url).port
        assert port is not None
        return port

    def log_in(self) -> dict[str, Any]:
        """By device, as the terminal does it."""
        codes = self.client.ask_for_device()
        self.owner.approve(codes["verification_uri_complete"])
        answer = self.client.poll(codes["device_code"])
        assert answer.status_code == 200, answer.text
        return answer.json()

    def rows(self) -> dict[str, int]:
        """Count the rows of each table but those of calls, which are written a second after the test that made them."""
        with closing(sqlite3.connect(self.program.data_dir / "ostiary.db")) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            count = "SELECT count(*) FROM {}"
            names = {name for (name,) in tables} - {"calls", "call_hours", "tool_uses"}
            return {name: connection.execute(count.format(name)).fetchone()[0] for name in names}


def make_house(stack: ExitStack, home: Path, *options: str) -> House:
    program = Program(command=SOURCE, home=home)
    server = stack.enter_context(program.serving(*options))
    owner, client = Person(), Handmade(server.url)
    stack.callback(owner.close)
    stack.callback(client.close)
    owner.claim(program, server)
    return House(program=program, server=server, owner=owner, client=client)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        yield make_house(stack, tmp_path_factory.mktemp("lessons"))


def challenge_of(answer: httpx2.Response) -> dict[str, str]:
    scheme, _, parameters = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', parameters))


def is_json(answer: httpx2.Response) -> bool:
    return answer.headers["content-type"].partition(";")[0] == "application/json"


# ---------------------------------------------------------------- finding the way


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("slash", ["", "/"])
def test_the_resource_is_the_very_address_that_was_typed(house: House, name: str, slash: str) -> None:
    typed = f"http://{name}:{house.port}"
    host = {"host": f"{name}:{house.port}"}
    refused = house.client.get(f"/mcp{slash}", **host)
    document = challenge_of(refused)["resource_metadata"]
    assert document == f"{typed}{RESOURCE}/mcp{slash}"
    told = house.client.get(document.removeprefix(typed), **host).json()
    assert told["resource"] == f"{typed}/mcp{slash}"
    assert told["authorization_servers"] == [typed]
    assert house.client.get("/.well-known/oauth-authorization-server", **host).json()["issuer"] == typed


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_an_answer_and_an_error_carry_the_issuer_letter_by_letter(house: House, name: str) -> None:
    client, person = Handmade(f"http://{name}:{house.port}"), Person()
    try:
        issuer = client.metadata()["issuer"]
        assert client.metadata()["authorization_response_iss_parameter_supported"] is True
        assert issuer == client.origin  # no slash at its end
        client_id = client.register()["client_id"]
        for wrong in ({"response_type": "token"}, {"code_challenge_method": "plain"}, {"scope": "nonsense"}):
            said = landed(person, client.authorize_url(client_id, **wrong))
            assert (said["iss"], said["state"]) == (issuer, "as~it-was")
            assert said["error"]
        if name == "127.0.0.1":  # where the owner's browser has its cookie
            said = client.agreed(house.owner, client_id)
            assert said.keys() == {"code", "state", "iss"}
            assert (said["iss"], said["state"]) == (issuer, "as~it-was")
            denied = landed(house.owner, client.authorize_url(client_id, prompt="consent"), words="Deny")
            assert (denied["iss"], denied["error"]) == (issuer, "access_denied")
    finally:
        client.close()
        person.close()


def test_a_program_that_was_started_again_refreshes_at_the_roots_token_before_it_looks_anything_up(
    house: House,
) -> None:
    told = house.client.metadata()
    for path in ("authorize", "token", "register"):
        name = {"authorize": "authorization", "register": "registration"}.get(path, path)
        assert told[f"{name}_endpoint"] == f"{house.server.url}/{path}"
    login = house.log_in()
    fresh = httpx2.post(
        f"{house.server.url}/token",
        data={"grant_type": "refresh_token", "refresh_token": login["refresh_token"], "client_id": CLI},
        trust_env=False,
        timeout=WAIT_SECONDS,
    )
    assert fresh.status_code == 200
    assert house.client.works(fresh.json()["access_token"])


@pytest.mark.parametrize("name", NAMES)
def test_a_listener_may_have_any_port_and_no_other_path_or_name(house: House, name: str) -> None:
    registered = [f"http://{name}/callback", "https://app.example.org/callback"]
    client_id = house.client.register(redirect_uris=registered)["client_id"]
    for port in ("", ":49152", ":8080"):
        uri = f"http://{name}{port}/callback"
        code = house.client.agreed(house.owner, client_id, redirect_uri=uri)["code"]
        assert house.client.redeem(client_id, code, redirect_uri=uri).status_code == 200
    others = [
        f"http://{name}:49152/elsewhere",
        f"http://{name}:49152/callback/",
        f"https://{name}:49152/callback",
        "http://127.0.0.2:49152/callback",
        "https://app.example.org:8443/callback",
    ]
    others += [f"http://{other}:49152/callback" for other in NAMES if other != name]
    for uri in others:
        url = house.client.authorize_url(client_id, redirect_uri=uri)
        page = house.owner.browser.get(url, follow_redirects=False)
        assert (page.status_code, "location" in page.headers) == (400, False), uri


def test_the_page_whose_form_leads_to_a_program_is_allowed_to(house: House) -> None:
    client_id = house.client.register()["client_id"]
    page = house.owner.browser.get(house.client.authorize_url(client_id), follow_redirects=False)
    assert page.status_code == 200
    (policy,) = page.headers.get_list("content-security-policy")
    (targets,) = [part.split() for part in policy.split("; ") if part.startswith("form-action")]
    assert {"'self'", CALLBACK.removesuffix("/callback")} <= set(targets)


# ---------------------------------------------------------------- tokens and sessions


def test_a_refresh_token_that_is_sent_twice_at_once_is_answered_twice(house: House) -> None:
    login, start = house.log_in(), threading.Barrier(2)
    answers: list[httpx2.Response] = []

    def send() -> None:
        start.wait()
        answers.append(house.client.refresh(login["refresh_token"]))

    both = [threading.Thread(target=send) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    first, second = (answer.json() for answer in answers)
    assert first["refresh_token"] == second["refresh_token"] != login["refresh_token"]
    assert all(house.client.works(each["access_token"]) for each in (login, first, second))
    assert house.client.refresh(first["refresh_token"]).status_code == 200


def test_a_token_lives_for_minutes_and_a_session_outlives_it(house: House) -> None:
    login = house.log_in()
    assert login["expires_in"] >= 600
    said = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "handmade", "version": "1"},
    }
    opened = house.client.mcp("initialize", said, token=login["access_token"])
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    assert house.client.mcp("tools/list", token=login["access_token"], headers=session).status_code == 200
    fresh = house.client.refresh(login["refresh_token"]).json()
    assert house.client.mcp("tools/list", token=fresh["access_token"], headers=session).status_code == 200


@pytest.mark.parametrize("verb", ["GET", "HEAD", "POST", "DELETE", "PUT"])
def test_whoever_knocks_is_asked_for_a_token_before_anything_else(house: House, verb: str) -> None:
    for path in ("/mcp", "/mcp/"):
        answer = house.client.http.request(verb, house.server.url + path)
        assert answer.status_code == 401
        challenge = challenge_of(answer)
        assert challenge["resource_metadata"] == f"{house.server.url}{RESOURCE}{path}"
        assert "error" not in challenge
        for bad in ("Bearer nonsense", "Bearer a.b.c", "bearer rt1.x"):
            answer = house.client.http.request(verb, house.server.url + path, headers={"Authorization": bad})
            challenge = challenge_of(answer)
            assert (answer.status_code, challenge["error"]) == (401, "invalid_token")
            assert challenge["resource_metadata"] == f"{house.server.url}{RESOURCE}{path}"


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
        "/.well-known/oauth-protected-resource/elsewhere",
        "/mcp/.well-known/oauth-authorization-server",
        "/mcp/.well-known/openid-configuration",
    ],
)
def test_a_document_that_is_not_there_is_a_clean_404(house: House, path: str, verb: str) -> None:
    answer = house.client.http.request(verb, house.server.url + path, headers={"Accept": "text/html, */*"})
    assert (answer.status_code, is_json(answer)) == (404, True)
    assert {"www-authenticate", "set-cookie", "location"}.isdisjoint(answer.headers)
    for there in (RESOURCE, f"/mcp{RESOURCE}"):
        assert house.client.get(there).json()["resource"] == f"{house.server.url}/mcp"


def test_the_scopes_of_the_challenge_are_all_that_a_usual_session_needs(house: House) -> None:
    asked = challenge_of(house.client.mcp("tools/list", token=None))["scope"]
    document = house.client.get(f"{RESOURCE}/mcp").json()["scopes_supported"]
    published = house.client.metadata()["scopes_supported"]
    assert set(asked.split()) <= set(document) <= set(published)
    assert set(published) - set(document) == {"offline_access"}
    client_id = house.client.register(scope=f"{asked} offline_access")["client_id"]
    url = {"scope": f"{asked} offline_access", "prompt": "consent"}
    code = house.client.agreed(house.owner, client_id, **url)["code"]
    login = house.client.redeem(client_id, code).json()
    assert set(login["scope"].split()) == set(asked.split())
    assert login["refresh_token"]
    assert house.client.works(login["access_token"])
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping"):
        assert house.client.mcp(method, token=login["access_token"]).status_code == 200, method
    me = house.client.mcp("resources/read", {"uri": "ostiary://me"}, token=login["access_token"])
    assert "olivia" in me.text


# ---------------------------------------------------------------- the token endpoint


@pytest.mark.parametrize("kind", [FORM, f"{FORM};charset=UTF-8", f"{FORM}; charset=utf-8"])
def test_a_form_may_name_its_letters_and_its_sender_twice_and_accept_nothing(house: House, kind: str) -> None:
    login = house.log_in()
    request = f"grant_type=refresh_token&scope=&resource=&refresh_token={login['refresh_token']}"
    shapes: list[tuple[str, dict[str, str]]] = [
        (f"{request}&client_id={CLI}", {}),
        (request, {"Authorization": basic(CLI, "")}),
        (f"{request}&client_id={CLI}", {"Authorization": basic(CLI, "")}),
        (f"{request}&client_id={CLI}&client_secret=", {}),
    ]
    for body, headers in shapes:
        sent = house.client.http.build_request(
            "POST", f"{house.server.url}/token", content=body, headers={"Content-Type": kind, **headers}
        )
        del sent.headers["accept"]
        answer = house.client.http.send(sent)
        assert answer.status_code == 200, answer.text
        assert is_json(answer)
        assert answer.headers["cache-control"] == "no-store"
        told = answer.json()
        assert (told["token_type"], told["scope"]) == ("Bearer", login["scope"])


def test_a_client_with_a_secret_shows_it_in_either_place_whichever_it_registered(house: House) -> None:
    for method in ("client_secret_basic", "client_secret_post"):
        told = house.client.register(token_endpoint_auth_method=method)
        client_id, secret = told["client_id"], told["client_secret"]
        shapes: list[tuple[dict[str, str], dict[str, str]]] = [
            ({}, {"Authorization": basic(client_id, secret)}),
            ({"client_id": client_id}, {"Authorization": basic(client_id, secret)}),
            ({"client_id": client_id, "client_secret": secret}, {}),
        ]
        for form, headers in shapes:
            code = house.client.agreed(house.owner, client_id)["code"]
            redeem = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
            redeem["code_verifier"] = house.client.verifier
            assert house.client.post("/token", {**redeem, **form}, headers).status_code == 200
        for form, headers in (
            ({"client_id": client_id}, {}),
            ({}, {"Authorization": basic(client_id, "")}),
            ({"client_id": client_id, "client_secret": "another"}, {}),
        ):
            refused = house.client.post("/token", {"grant_type": "refresh_token", **form}, headers)
            assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")


def test_each_refusal_of_a_token_is_the_one_that_makes_a_client_do_the_right_thing(house: House) -> None:
    unknown = house.client.refresh("rt1.x", "forgotten")
    assert (unknown.status_code, unknown.json()["error"]) == (401, "invalid_client")  # it registers again
    assert "www-authenticate" not in unknown.headers
    stale = house.client.refresh("rt1.grt_aaaaaaaaaaaaaaaaaaaa.1." + "A" * 43)
    assert (stale.status_code, stale.json()["error"]) == (400, "invalid_grant")  # it signs in again
    foreign = house.client.refresh(house.log_in()["refresh_token"], resource="https://elsewhere.example/mcp")
    assert (foreign.status_code, foreign.json()["error"]) == (400, "invalid_target")


def test_a_resource_may_be_named_at_every_step_or_never(house: House) -> None:
    for resource in ({}, {"resource": house.server.endpoint}, {"resource": f"{house.server.endpoint}/"}):
        codes = house.client.ask_for_device(**resource)
        house.owner.approve(codes["verification_uri_complete"])
        login = house.client.poll(codes["device_code"], **resource).json()
        fresh = house.client.refresh(login["refresh_token"], **resource)
        assert house.client.works(fresh.json()["access_token"])


# ---------------------------------------------------------------- registering


def test_a_registration_is_repeated_and_takes_what_programs_send(house: House) -> None:
    said = {
        "client_name": "Some program",
        "redirect_uris": [CALLBACK],
        "grant_types": [DEVICE_CODE, "refresh_token"],
        "response_types": ["code"],
        "application_type": "native",
        "software_id": "a-thing",
        "software_version": "9",
        "scope": "mcp mcp:tools",
        "contacts": ["dev@example.org"],
        "something_new": {"deep": [1]},
    }
    told = house.client.register(**said)
    for member in ("client_name", "redirect_uris", "grant_types", "software_id", "software_version", "scope"):
        assert told[member] == said[member]
    assert told["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in told
    usual = house.client.register(token_endpoint_auth_method=None)
    assert usual["token_endpoint_auth_method"] == "client_secret_basic"
    assert usual["client_secret"]
    assert usual["client_secret_expires_at"] == 0
    device = house.client.register(redirect_uris=None, grant_types=[DEVICE_CODE])
    codes = house.client.post("/device_authorization", {"client_id": device["client_id"]})
    assert codes.status_code == 200
    # One for each login is what several programs do.
    assert len({house.client.register()["client_id"] for _ in range(10)}) == 10


# ---------------------------------------------------------------- in a browser


def test_looking_at_the_authorization_address_first_changes_nothing(house: House) -> None:
    client_id = house.client.register()["client_id"]
    url = house.client.authorize_url(client_id)
    wrong = (
        house.client.authorize_url("forgotten"),
        house.client.authorize_url(client_id, redirect_uri="https://elsewhere.example/cb"),
        f"{house.server.url}/authorize",
    )
    before = house.rows()
    for _ in range(3):
        looked = house.client.http.get(url)
        assert looked.status_code in (200, 303)
        assert "code=" not in looked.headers.get("location", "")
    for address in wrong:
        refused = house.client.http.get(address)
        assert refused.status_code == 400
        assert "location" not in refused.headers
    assert house.rows() == before
    assert landed(house.owner, url)["code"]


def test_a_device_is_told_numbers_polls_at_once_and_its_code_is_understood_as_it_is_typed(
    house: House,
) -> None:
    codes = house.client.ask_for_device()
    assert (type(codes["interval"]), type(codes["expires_in"])) == (int, int)
    assert codes["verification_uri"] == f"{house.server.url}/device"
    assert codes["verification_uri_complete"] == f"{house.server.url}/device?user_code={codes['user_code']}"
    first = house.client.poll(codes["device_code"])
    assert (first.status_code, first.json()["error"]) == (400, "authorization_pending")
    hasty = house.client.poll(codes["device_code"])
    assert (hasty.status_code, hasty.json()["error"]) == (400, "slow_down")
    house.program.at_machine("approve", codes["user_code"].replace("-", "").lower(), "--yes")
    assert house.client.poll(codes["device_code"]).status_code == 200

    other = house.client.ask_for_device()
    typed = other["user_code"].replace("-", " ").lower()
    page = house.owner.browser.get(f"{house.server.url}/device", params={"user_code": typed})
    assert other["user_code"] in page.text
    house.owner.press(house.owner.press(page, "Continue"), "Deny")
    for code in (other["device_code"], "unknown"):
        refused = house.client.poll(code)
        assert (refused.status_code, is_json(refused)) == (400, True)
    assert house.client.poll(other["device_code"]).json()["error"] == "access_denied"


def test_a_program_that_is_named_by_its_document_logs_in_where_nothing_can_be_fetched(home: Path) -> None:
    with ExitStack() as stack:
        house = make_house(stack, home, "--client-documents", "pinned")
        told = house.client.metadata()
        assert told["client_id_metadata_document_supported"] is True
        assert "none" in told["token_endpoint_auth_methods_supported"]
        uri = "http://localhost:49152/callback"
        page = house.owner.browser.get(house.client.authorize_url(CLAUDE_CODE, redirect_uri=uri))
        assert "claude.ai" in page.text
        code = house.client.agreed(house.owner, CLAUDE_CODE, redirect_uri=uri)["code"]
        login = house.client.redeem(CLAUDE_CODE, code, redirect_uri=uri)
        assert house.client.works(login.json()["access_token"])
        unknown = house.client.authorize_url("https://elsewhere.example/client.json", redirect_uri=uri)
        assert house.client.http.get(unknown).status_code == 400


def test_where_documents_are_switched_off_none_is_announced_or_taken(home: Path) -> None:
    with ExitStack() as stack:
        house = make_house(stack, home, "--client-documents", "off")
        told = house.client.metadata()
        assert told["client_id_metadata_document_supported"] is False
        assert told["registration_endpoint"]  # what they fall back to
        url = house.client.authorize_url(CLAUDE_CODE, redirect_uri="http://localhost:49152/callback")
        assert house.owner.browser.get(url).status_code == 400


def test_what_is_announced_says_outright_what_clients_would_otherwise_guess(house: House) -> None:
    told = house.client.metadata()
    assert told["code_challenge_methods_supported"] == ["S256"]
    methods = told["token_endpoint_auth_methods_supported"]
    assert {"none", "client_secret_basic", "client_secret_post"} <= set(methods)
    login = house.log_in()
    path = told["revocation_endpoint"].removeprefix(house.server.url)
    gone = house.client.post(path, {"token": login["refresh_token"], "client_id": CLI})
    assert gone.status_code == 200
    assert not house.client.works(login["access_token"])
    assert house.client.post(path, {"token": "nothing", "client_id": CLI}).status_code == 200


def test_programs_that_leave_their_sessions_behind_lock_nobody_out(house: House) -> None:
    login = house.log_in()
    said = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "handmade", "version": "1"},
    }
    ids: list[str] = []
    for _ in range(80):  # two for each start of a program that never ends one
        opened = house.client.mcp("initialize", said, token=login["access_token"])
        assert opened.status_code == 200
        ids.append(opened.headers["mcp-session-id"])

    def listed(session_id: str) -> int:
        headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": "2025-06-18"}
        return house.client.mcp("tools/list", token=login["access_token"], headers=headers).status_code

    assert [listed(session_id) for session_id in ids[-20:]] == [200] * 20
    assert listed(ids[0]) == 200  # the oldest gave way, and is taken up again, with nothing in it


# ---------------------------------------------------------------- whatever is sent


def test_programs_are_never_sent_a_page_and_never_a_fault(house: House) -> None:
    """Whatever is posted to the endpoints of programs, and whatever they say they would like to see."""
    paths = ("/token", "/revoke", "/introspect", "/device_authorization", "/par", "/register", "/register/x")
    bodies: tuple[tuple[str, bytes], ...] = (
        (FORM, b""),
        (FORM, b"grant_type=refresh_token&grant_type=refresh_token"),
        (FORM, b"%ff%fe=%00&client_id=%ED%A0%80"),
        (FORM, b"client_id=" + b"x" * 60_000),
        (f"{FORM}; charset=utf-16", b"client_id=x"),
        ("application/json", b'{"grant_type": "refresh_token"}'),
        ("application/json", b"[" * 5_000),
        ("application/json", b'{"redirect_uris": {"a": 1}, "client_name": 7}'),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nno--x--"),
        ("text/html", b"<html>"),
        (FORM, b"x" * 70_000),
    )
    browser = {"Accept": "text/html"}
    for path in paths:
        for verb in ("GET", "PUT", "DELETE", "PATCH"):
            answer = house.client.http.request(verb, house.server.url + path, headers=browser)
            assert 400 <= answer.status_code < 500, (verb, path)
            assert is_json(answer), (verb, path)
        for kind, body in bodies:
            for headers in ({}, {"Authorization": "Basic !!"}, {"Authorization": "Bearer x"}):
                answer = house.client.http.post(
                    house.server.url + path,
                    content=body,
                    headers={**browser, "Content-Type": kind, **headers},
                )
                assert 400 <= answer.status_code < 500, (path, kind, body[:40], answer.text)
                assert is_json(answer), (path, kind, body[:40])
                assert "error" in answer.json()
    answer = house.client.http.post(
        house.server.endpoint, content=b"[" * 100_000, headers={**MCP_HEADERS, **browser}
    )
    assert (answer.status_code, "html" in answer.headers["content-type"]) == (401, False)
    assert json.loads(house.client.get(RESOURCE).text)
    assert '"level": "error"' not in house.server.said()


# ── asking for more ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answer", ["Deny", "Allow"])
def test_who_declines_to_grant_more_is_not_asked_again_at_every_call(house: House, answer: str) -> None:
    """A program that goes and asks whenever it is challenged: Allow without the scope's box is a no as well."""
    client = house.client.register(client_name="Asks again")["client_id"]

    def token(scope: str) -> str:
        code = house.client.agreed(house.owner, client, scope=scope)["code"]
        return house.client.redeem(client, code).json()["access_token"]

    def call(token: str) -> httpx2.Response:
        return house.client.mcp("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, token=token)

    less = token("mcp:resources")
    challenged = call(less)
    assert challenged.status_code == 403
    assert "the login lacks the scope mcp:tools" in challenged.headers["www-authenticate"]
    if answer == "Deny":
        denied = landed(
            house.owner, house.client.authorize_url(client, scope="mcp:resources mcp:tools"), words="Deny"
        )
        assert denied["error"] == "access_denied"
    else:
        less = token("mcp:resources")
    told = call(less)
    assert told.status_code == 200 and told.json()["result"]["isError"] is True
    assert "mcp:tools" in told.json()["result"]["content"][0]["text"]
    assert house.client.works(token("mcp:resources mcp:tools"))
