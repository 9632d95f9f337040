"""POST /par (RFC 9126): who may push what, for how long it waits, and that it is decided once."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientRegistration
from auth.endpoints import pushed_authorization
from tests.auth.browser_fakes import header
from tests.auth.code_fakes import CALLBACK, STATE, Porch, Program, answer_of, body_of, open_porch, press
from tests.auth.identity_fakes import MINUTE, ORIGIN, POLICY, SECOND, get


async def pushed(porch: Porch, program: Program, **changes: str | None) -> str:
    """The path that a browser is opened at."""
    reply = await porch.post("/par", **program.request(**changes))
    assert reply.status == 201, reply.body
    return "/authorize?" + urlencode(
        {"client_id": program.client.id, "request_uri": body_of(reply)["request_uri"]}
    )


async def test_a_pushed_request_is_answered_like_any_other() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        reply = await porch.post("/par", **program.request(scope="mcp:tools"))
        body = body_of(reply)
        assert reply.status == 201
        assert header(reply, "Cache-Control") == "no-store"
        assert body["expires_in"] == POLICY.tokens.pushed_ms // 1_000
        assert body["request_uri"].startswith("urn:ietf:params:oauth:request_uri:")
        assert body["request_uri"] not in repr(await porch.rows("pushed_requests"))
        assert await porch.audited("request.pushed") == [("ok", "")]

        browser = await porch.browser(signed_in=False)
        await browser.get(
            "/authorize?" + urlencode({"client_id": program.client.id, "request_uri": body["request_uri"]})
        )
        await browser.submit("/signin", name="alice", passphrase="four calm herons wading")
        answer = answer_of(await press(browser, "allow"))
        assert (answer["state"], answer["iss"]) == (STATE, ORIGIN)
        tokens = body_of(await program.redeem(answer["code"]))
        assert tokens["scope"] == "mcp:tools"


async def test_a_pushed_request_is_decided_once_and_can_be_looked_at_before() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        path = await pushed(porch, program)
        browser = await porch.browser()
        for _ in range(3):
            assert (await browser.get(path)).status == 200
        fields = [*browser.fields("/authorize/decide#allow"), ("decision", "allow")]
        assert (await browser.post("/authorize/decide", *fields, follow=False)).status == 303
        for again in (
            await browser.post("/authorize/decide", *fields, follow=False),
            await browser.get(path, follow=False),
        ):
            assert again.status == 400
            assert "answered already" in browser.words
        assert len(await porch.rows("authorization_codes")) == 1


async def test_a_denied_one_cannot_be_allowed_afterwards() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(await pushed(porch, program))
        fields = [*browser.fields("/authorize/decide#allow"), ("decision", "allow")]
        assert answer_of(await press(browser, "deny"))["error"] == "access_denied"
        assert (await browser.post("/authorize/decide", *fields, follow=False)).status == 400
        assert await porch.rows("authorization_codes") == []


async def test_it_waits_ninety_seconds_and_ten_minutes_once_somebody_who_is_signed_in_came_with_it() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser, stranger = await porch.browser(), await porch.browser(signed_in=False)
        late, seen, opened = [await pushed(porch, program) for _ in "123"]
        porch.clock.now += 89 * SECOND
        assert (await browser.get(opened, follow=False)).status == 200
        assert (await stranger.get(seen, follow=False)).status == 303
        porch.clock.now += SECOND
        assert (await browser.get(late, follow=False)).status == 400
        assert (await browser.get(seen, follow=False)).status == 400
        porch.clock.now += 8 * MINUTE
        assert (await browser.get(opened, follow=False)).status == 200
        porch.clock.now += pushed_authorization.OPENED_MS
        assert (await browser.get(opened, follow=False)).status == 400


async def test_it_belongs_to_its_client_and_nothing_beside_it_counts() -> None:
    async with open_porch() as porch:
        program, other = await porch.program(), await porch.program()
        path = await pushed(porch, program, scope="mcp:tools")
        browser = await porch.browser()
        stolen = path.replace(program.client.id, other.client.id)
        assert (await browser.get(stolen, follow=False)).status == 400
        assert (await browser.get(path.partition("&")[0] + "&" + path.partition("&")[2] * 2)).status == 400
        more = urlencode({"scope": "mcp", "redirect_uri": "https://evil.example/", "state": "evil"})
        await browser.get(f"{path}&{more}")
        answer = answer_of(await press(browser, "allow"))
        assert answer["state"] == STATE
        (row,) = await porch.rows("authorization_codes")
        assert (row["scope"], row["redirect_uri"]) == ("mcp:tools", CALLBACK)


WRONG: dict[str, tuple[str, tuple[tuple[str, str], ...], dict[str, str | None]]] = {
    "another redirect address": ("invalid_request", (), {"redirect_uri": "https://evil.example/"}),
    "no PKCE": ("invalid_request", (), {"code_challenge": None}),
    "plain PKCE": ("invalid_request", (), {"code_challenge_method": "plain"}),
    "a token at once": ("unsupported_response_type", (), {"response_type": "token"}),
    "no scope of ours": ("invalid_scope", (("scope", "admin"),), {}),
    "a foreign resource": ("invalid_target", (("resource", "https://evil.example/"),), {}),
    "a request object": ("request_not_supported", (("request", "e30.e30."),), {}),
    "a pushed request in a pushed request": (
        "invalid_request",
        (("request_uri", "urn:ietf:params:oauth:request_uri:x"),),
        {},
    ),
    "two states": ("invalid_request", (("state", "second"),), {}),
    "a state of 3 000 characters": ("invalid_request", (), {"state": "s" * 3_000}),
    "more than a line holds": (
        "invalid_request",
        (("resource", ORIGIN + "/mcp?" + "%" * 2_000),) * 2,
        {"state": "%" * 2_000},
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_request_is_refused_where_it_is_pushed(name: str) -> None:
    error, more, changes = WRONG[name]
    async with open_porch() as porch:
        program = await porch.program()
        reply = await porch.post("/par", *more, **program.request(**changes))
        assert (reply.status, body_of(reply)["error"]) == (400, error)
        assert await porch.rows("pushed_requests") == []


async def test_a_client_that_may_not_ask_for_codes_may_not_push() -> None:
    async with open_porch() as porch:
        program = await porch.program(grant_types=("refresh_token",))
        reply = await porch.post("/par", **program.request())
        assert body_of(reply)["error"] == "unauthorized_client"


async def test_an_unknown_client_may_not_push() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        reply = await porch.post("/par", **program.request(client_id="nobody"))
        assert (reply.status, body_of(reply)["error"]) == (401, "invalid_client")


async def test_a_client_with_a_secret_shows_it() -> None:
    async with open_porch() as porch:
        registration = ClientRegistration(
            name="Web",
            client_id="web",
            auth_method="client_secret_post",
            grant_types=("authorization_code",),
            redirect_uris=(CALLBACK,),
        )
        added = await porch.identity.parts.store.write(
            lambda db: clients.add(db, registration, seed=bytes(32), by="local:0", now=porch.clock())
        )
        assert added is not None
        assert added.secret is not None
        program = Program(porch, added.client)
        assert (await porch.post("/par", **program.request())).status == 401
        reply = await porch.post("/par", client_secret=added.secret.reveal(), **program.request())
        assert reply.status == 201
        assert added.secret.reveal() not in repr(await porch.rows("pushed_requests"))


async def test_only_post_is_served_and_pages_of_any_origin_may_push() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        reply = await porch.post("/par", **program.request())
        assert header(reply, "Access-Control-Allow-Origin") == "*"
        looked = await porch.identity.handle(get("/par"))
        assert looked is not None
        assert looked.status == 405
