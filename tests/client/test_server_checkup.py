from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import trio
from fake_server import DEVICE_GRANT, FakeServer, Response, Seen, as_json
from test_access_token import stored

from server.client.server_checkup import CheckStep, examine
from server.client.token_claims import read_claims
from server.client.token_file import TokenFile
from server.lib.secret import Secret

PRM = "/.well-known/oauth-protected-resource/mcp"
ASM = "/.well-known/oauth-authorization-server"


async def steps_of(fake: FakeServer, file: TokenFile, url: str | None = None) -> list[CheckStep]:
    with trio.fail_after(60):
        return [step async for step in examine(url or fake.url, file)]


def states(steps: list[CheckStep]) -> list[tuple[str, str]]:
    return [(step.name, step.state) for step in steps]


def saying(response: Response) -> Any:
    async def handler(request: Seen) -> Response:
        return response

    return handler


async def test_a_good_server_and_a_login_are_all_ticks(fake: FakeServer, file: TokenFile) -> None:
    stored(fake, file)
    found = await steps_of(fake, file)
    assert states(found) == [
        (name, "skipped" if name == "browser login" else "ok")
        for name in (
            "connection",
            "challenge",
            "resource",
            "issuer",
            "device login",
            "browser login",
            "login",
            "tools",
        )
    ]
    # Looking changes nothing at the server: no code was asked for in anybody's name.
    (probe,) = fake.requests("/device_authorization")
    assert probe.body == b"scope=mcp&scope=mcp"


async def test_a_challenge_that_names_no_metadata_is_a_fault_but_not_the_end(
    fake: FakeServer, file: TokenFile
) -> None:
    fake.overrides["/mcp"] = saying(as_json({}, 401, WWW_Authenticate="Bearer"))
    found = await steps_of(fake, file)
    assert states(found)[1:4] == [("challenge", "failed"), ("resource", "ok"), ("issuer", "ok")]
    assert found[1].hint is not None


@pytest.mark.parametrize(
    ("path", "response", "last"),
    [
        ("/mcp", Response(500), "challenge"),
        (PRM, Response(500), "resource"),
        (ASM, Response(404), "issuer"),
        (ASM, as_json({"issuer": "https://other.example"}), "issuer"),
    ],
)
async def test_a_broken_step_is_the_last_one_and_failed(
    fake: FakeServer, file: TokenFile, path: str, response: Response, last: str
) -> None:
    fake.overrides[path] = saying(response)
    found = await steps_of(fake, file)
    assert states(found)[-1] == (last, "failed")
    assert {state for _, state in states(found)[:-1]} == {"ok"}


@pytest.mark.parametrize("response", [Response(404), Response(200, b"{}"), Response(500)])
async def test_a_device_endpoint_in_trouble_is_seen(
    fake: FakeServer, file: TokenFile, response: Response
) -> None:
    fake.overrides["/device_authorization"] = saying(response)
    state = dict(states(await steps_of(fake, file)))["device login"]
    # A server that is busy just now is none that is broken.
    assert state == ("ok" if response.status == 500 else "failed")


def step_of(steps: list[CheckStep], name: str) -> CheckStep:
    return next(step for step in steps if step.name == name)


async def test_a_server_with_a_browser_login_alone_is_no_fault(fake: FakeServer, file: TokenFile) -> None:
    fake.browser_only()
    found = await steps_of(fake, file)
    assert step_of(found, "device login").state == "skipped"
    assert step_of(found, "browser login") == CheckStep(
        name="browser login", state="ok", detail="offered with PKCE, registration, iss"
    )
    assert fake.requests("/register") == [], "looking registers nobody"
    (looked,) = fake.requests("/authorize")
    assert looked.query == "", "nothing is asked for in anybody's name"


async def test_a_browser_login_that_is_not_protected_is_a_fault_also_beside_codes(
    fake: FakeServer, file: TokenFile
) -> None:
    fake.browser_only()
    fake.metadata["code_challenge_methods_supported"] = ["plain"]
    step = step_of(await steps_of(fake, file), "browser login")
    assert step.state == "failed" and "(PKCE with S256)" in step.detail
    fake.metadata["grant_types_supported"].append(DEVICE_GRANT)
    found = await steps_of(fake, file)
    assert step_of(found, "device login").state == "ok"
    assert step_of(found, "browser login").state == "failed"
    assert step_of(found, "login").state == "skipped", "the rest is looked at all the same"


@pytest.mark.parametrize(
    ("status", "state"),
    [(200, "ok"), (302, "ok"), (400, "ok"), (429, "ok"), (404, "failed"), (500, "failed")],
)
async def test_the_page_of_a_browser_login_must_answer(
    fake: FakeServer, file: TokenFile, status: int, state: str
) -> None:
    fake.browser_only()
    fake.overrides["/authorize"] = saying(Response(status))
    step = step_of(await steps_of(fake, file), "browser login")
    assert step.state == state
    assert state == "ok" or f"status {status}" in step.detail


async def test_a_server_that_knows_our_terminal_is_asked_with_its_name_and_must_know_it(
    fake: FakeServer, file: TokenFile
) -> None:
    fake.browser_only()
    fake.metadata["ostiary_client_id"] = "ostiary-cli"
    assert step_of(await steps_of(fake, file), "browser login").state == "failed"
    (looked,) = fake.requests("/authorize")
    assert (looked.asked["client_id"], looked.asked["code_challenge_method"]) == ("ostiary-cli", "S256")


async def test_a_server_where_programs_are_added_by_hand_alone_is_told_with_the_way_in(
    fake: FakeServer, file: TokenFile
) -> None:
    fake.browser_only()
    del fake.metadata["registration_endpoint"]
    fake.metadata["client_id_metadata_document_supported"] = True
    step = step_of(await steps_of(fake, file), "browser login")
    assert step.state == "skipped"
    assert step.detail.startswith("offered with PKCE, documents, iss; ")
    assert step.hint is not None and "--client-id" in step.hint


async def test_answers_that_do_not_name_their_server_are_a_hint_and_no_fault(
    fake: FakeServer, file: TokenFile
) -> None:
    fake.browser_only()
    fake.metadata["authorization_response_iss_parameter_supported"] = False
    step = step_of(await steps_of(fake, file), "browser login")
    assert (step.state, step.detail) == ("ok", "offered with PKCE, registration")
    assert step.hint is not None and "RFC 9207" in step.hint


async def test_a_server_without_any_login_that_we_know_is_told(fake: FakeServer, file: TokenFile) -> None:
    fake.metadata["grant_types_supported"] = ["client_credentials"]
    found = await steps_of(fake, file)
    assert ("device login", "failed") in states(found)
    assert "neither codes nor" in step_of(found, "device login").detail
    assert "browser login" not in dict(states(found))


async def test_a_server_from_before_resource_metadata_is_looked_at_to_the_end(
    fake: FakeServer, file: TokenFile
) -> None:
    fake.overrides[PRM] = fake.overrides[PRM.removesuffix("/mcp")] = saying(Response(404))
    found = await steps_of(fake, file)
    assert states(found)[1:5] == [
        ("challenge", "ok"),
        ("resource", "failed"),
        ("issuer", "ok"),
        ("device login", "ok"),
    ]


async def test_a_server_that_needs_no_login_is_looked_at_without_one(
    fake: FakeServer, file: TokenFile
) -> None:
    fake.login_needed = False
    assert states(await steps_of(fake, file)) == [
        ("connection", "ok"),
        ("challenge", "skipped"),
        ("tools", "ok"),
    ]


async def test_without_a_login_the_tools_are_not_asked_for(fake: FakeServer, file: TokenFile) -> None:
    found = await steps_of(fake, file)
    assert states(found)[-1] == ("login", "skipped")
    assert found[-1].hint == f"ostiary login {fake.url}"


async def test_a_login_that_has_ended_is_a_fault(fake: FakeServer, file: TokenFile) -> None:
    stored(fake, file)
    fake.refresh_token = "another"
    assert states(await steps_of(fake, file))[-1] == ("login", "failed")


async def test_nobody_listening_ends_it_at_the_connection(fake: FakeServer, file: TokenFile) -> None:
    assert states(await steps_of(fake, file, "http://127.0.0.1:1/mcp")) == [("connection", "failed")]


def jwt(body: bytes) -> Secret:
    return Secret(f"e30.{base64.urlsafe_b64encode(body).rstrip(b'=').decode()}.sig")


@pytest.mark.parametrize(
    ("token", "claims"),
    [
        (jwt(json.dumps({"sub": "usr_1", "exp": 5, "aud": ["x"], "evil": "y"}).encode()), {"sub": "usr_1", "exp": 5}),
        (jwt(b"[]"), {}),
        (jwt(b"\xff"), {}),
        (Secret("opaque"), {}),
        (Secret("a.!!.c"), {}),
        (Secret("a..c"), {}),
        (Secret("ü.ü.ü"), {}),
    ],
)  # fmt: skip
def test_a_token_is_read_for_its_owner_if_it_can_be(token: Secret, claims: dict[str, Any]) -> None:
    assert read_claims(token) == claims
