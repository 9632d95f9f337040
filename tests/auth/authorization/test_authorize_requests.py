"""GET /authorize: which requests are answered by a page of ours, which at the program's address, and in what words."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.authorization import authorization_request as authorize
from auth.authorization.authorization_request import NoPlace, SendBack, WantedAccess
from auth.values.http_messages import WireReply
from auth.values.issuer_and_resources import Site
from tests.auth.browser_fakes import PASSPHRASE, Browser, header, location
from tests.auth.code_fakes import CALLBACK, CHALLENGE, STATE, Porch, Program, answer_of, open_porch, press
from tests.auth.identity_fakes import ORIGIN


def path_of(program: Program, *more: tuple[str, str], **changes: str | None) -> str:
    return "/authorize?" + urlencode([*program.request(**changes).items(), *more])


async def asked(porch: Porch, program: Program, *more: tuple[str, str], **changes: str | None) -> WireReply:
    browser = await porch.browser()
    return await browser.get(path_of(program, *more, **changes), site="cross-site", follow=False)


NO_PLACE: dict[str, tuple[tuple[tuple[str, str], ...], dict[str, str | None]]] = {
    "no client": ((), {"client_id": None}),
    "an empty client": ((), {"client_id": ""}),
    "an unknown client": ((), {"client_id": "nobody"}),
    "two clients": ((("client_id", "other"),), {}),
    "a client id out of ASCII": ((), {"client_id": "progr\u00e4m"}),
    "a document nobody has": ((), {"client_id": "https://evil.example/client.json"}),
    "another address": ((), {"redirect_uri": "https://evil.example/cb"}),
    "the address with another path": ((), {"redirect_uri": CALLBACK + "/x"}),
    "the address with a query": ((), {"redirect_uri": CALLBACK + "?next=https://evil.example"}),
    "the address with a user": ((), {"redirect_uri": "http://127.0.0.1:33418@evil.example/callback"}),
    "the address with a fragment": ((), {"redirect_uri": CALLBACK + "#x"}),
    "another loopback name": ((), {"redirect_uri": "http://localhost:33418/callback"}),
    "a script": ((), {"redirect_uri": "javascript:alert(1)"}),
    "data": ((), {"redirect_uri": "data:text/html,hi"}),
    "two addresses": ((("redirect_uri", CALLBACK),), {}),
    "an address of 3 000 characters": ((), {"redirect_uri": CALLBACK + "a" * 3_000}),
    "a pushed request that nobody pushed": (
        (("request_uri", "urn:ietf:params:oauth:request_uri:nothing"),),
        {},
    ),
}


@pytest.mark.parametrize("name", NO_PLACE)
async def test_a_request_without_a_safe_way_back_is_answered_by_a_page_of_ours(name: str) -> None:
    more, changes = NO_PLACE[name]
    async with open_porch() as porch:
        program = await porch.program()
        for signed_in in (False, True):
            browser = await porch.browser(signed_in=signed_in)
            reply = await browser.get(path_of(program, *more, **changes), site="cross-site", follow=False)
            assert reply.status == 400
            assert header(reply, "location") is None
            assert "This sign-in cannot go on" in browser.words
            assert "evil" not in browser.words


async def test_a_disabled_client_and_one_without_addresses_have_no_way_back() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        await porch.run("UPDATE clients SET state = 'disabled' WHERE id = ?", program.client.id)
        assert (await asked(porch, program)).status == 400
        bare = await porch.program(redirect_uris=())
        assert (await asked(porch, bare, redirect_uri=None)).status == 400
        several = await porch.program(redirect_uris=(CALLBACK, "https://client.example/cb"))
        assert (await asked(porch, several, redirect_uri=None)).status == 400


async def test_a_request_may_leave_out_the_only_address() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        code = (await program.agreed(browser, redirect_uri=None))["code"]
        assert (await program.redeem(code, redirect_uri="https://evil.example/")).status == 400
        assert (await program.redeem(code, redirect_uri=None)).status == 200


WRONG: dict[str, tuple[str, tuple[tuple[str, str], ...], dict[str, str | None]]] = {
    "no response type": ("invalid_request", (), {"response_type": None}),
    "a token at once": ("unsupported_response_type", (), {"response_type": "token"}),
    "a code and a token": ("unsupported_response_type", (), {"response_type": "code token"}),
    "two response types": ("invalid_request", (("response_type", "token"),), {}),
    "a fragment as answer": ("invalid_request", (("response_mode", "fragment"),), {}),
    "a form as answer": ("invalid_request", (("response_mode", "form_post"),), {}),
    "no PKCE": ("invalid_request", (), {"code_challenge": None, "code_challenge_method": None}),
    "no challenge": ("invalid_request", (), {"code_challenge": None}),
    "plain PKCE": ("invalid_request", (), {"code_challenge_method": "plain"}),
    "PKCE that is plain by omission": ("invalid_request", (), {"code_challenge_method": None}),
    "a method in small letters": ("invalid_request", (), {"code_challenge_method": "s256"}),
    "a challenge of 42 characters": ("invalid_request", (), {"code_challenge": CHALLENGE[:-1]}),
    "a challenge with padding": ("invalid_request", (), {"code_challenge": CHALLENGE + "="}),
    "a challenge in the other alphabet": ("invalid_request", (), {"code_challenge": "+" + CHALLENGE[1:]}),
    "two challenges": ("invalid_request", (("code_challenge", CHALLENGE),), {}),
    "somebody else's resource": ("invalid_target", (("resource", "https://evil.example/mcp"),), {}),
    "a resource that is no address": ("invalid_target", (("resource", "agent"),), {}),
    "two resources": (
        "invalid_target",
        (("resource", ORIGIN + "/mcp"), ("resource", ORIGIN + "/other/mcp")),
        {},
    ),
    "nine resources": ("invalid_request", (("resource", ORIGIN + "/mcp"),) * 9, {}),
    "no scope of ours": ("invalid_scope", (("scope", "admin everything"),), {}),
    "two scopes parameters": ("invalid_request", (("scope", "mcp"), ("scope", "mcp:tools")), {}),
    "a scope of 2 000 characters": ("invalid_request", (("scope", "mcp " * 500),), {}),
    "prompt none and more": ("invalid_request", (("prompt", "none login"),), {}),
    "a max_age that is no number": ("invalid_request", (("max_age", "-1"),), {}),
    "a max_age in other digits": ("invalid_request", (("max_age", "\u0661"),), {}),
    "a request object": ("request_not_supported", (("request", "e30.e30."),), {}),
    "a request somewhere else": ("invalid_request_uri", (("request_uri", "https://evil.example/r"),), {}),
}


@pytest.mark.parametrize("name", WRONG)
async def test_whatever_else_is_wrong_is_told_at_the_programs_address(name: str) -> None:
    error, more, changes = WRONG[name]
    async with open_porch() as porch:
        program = await porch.program()
        for signed_in in (False, True):
            browser = await porch.browser(signed_in=signed_in)
            reply = await browser.get(path_of(program, *more, **changes), site="cross-site", follow=False)
            assert location(reply).startswith(CALLBACK + "?error=")
            answer = answer_of(reply)
            assert (answer.pop("error"), answer.pop("state"), answer.pop("iss")) == (error, STATE, ORIGIN)
            assert set(answer) == {"error_description"}
            assert header(reply, "cache-control") == "no-store"
            assert header(reply, "referrer-policy") == "no-referrer"
        assert await porch.rows("authorization_codes") == []


async def test_a_state_that_cannot_be_read_is_not_repeated() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        for state in ("a\nb", "\u2028", "s" * 3_000):
            answer = answer_of(await asked(porch, program, state=state))
            assert answer["error"] == "invalid_request"
            assert "state" not in answer
        answer = answer_of(await asked(porch, program, ("state", "second")))
        assert "state" not in answer


async def test_a_redirect_address_with_an_issuer_of_its_own_gives_ours_once() -> None:
    async with open_porch() as porch:
        own = "https://client.example/cb?iss=https%3A%2F%2Fevil.example&keep=1"
        program = await porch.program(redirect_uris=(own,))
        wrong = answer_of(await asked(porch, program, response_type="token"))
        assert (wrong["iss"], wrong["keep"]) == (ORIGIN, "1")
        right = await program.agreed(await porch.browser())
        assert (right["iss"], right["keep"]) == (ORIGIN, "1")


async def test_parameters_that_nobody_knows_are_ignored_even_twice() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        reply = await asked(porch, program, ("nonce", "1"), ("nonce", "2"), ("claims", "{}"))
        assert reply.status == 200


async def test_empty_parameters_count_as_left_out() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        reply = await asked(porch, program, ("scope", ""), ("resource", ""), ("prompt", ""), ("request", ""))
        assert reply.status == 200


async def test_offline_access_is_taken_and_means_nothing() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        await program.agreed(await porch.browser(), scope="offline_access mcp:tools")
        (row,) = await porch.rows("authorization_codes")
        assert row["scope"] == "mcp:tools"


@pytest.mark.parametrize(
    ("resource", "server"),
    [
        ((), "agent"),
        ((ORIGIN + "/other/mcp",), "other"),
        ((ORIGIN + "/mcp/", ORIGIN + "/mcp?utm_source=plugin"), "agent"),
    ],
)
async def test_a_login_is_for_the_server_that_its_resource_names(
    resource: tuple[str, ...], server: str
) -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(path_of(program, *(("resource", one) for one in resource)))
        await press(browser, "allow")
        (row,) = await porch.rows("authorization_codes")
        assert row["server"] == server


async def test_a_clients_ceiling_bounds_what_can_be_asked() -> None:
    async with open_porch() as porch:
        program = await porch.program(scope="mcp:tools")
        await program.agreed(await porch.browser(), scope="mcp")
        (row,) = await porch.rows("authorization_codes")
        assert row["scope"] == "mcp:tools"


async def test_only_get_is_served() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        reply = await browser.post("/authorize", *program.request().items())
        assert (reply.status, header(reply, "allow")) == (405, "GET, HEAD")


async def test_the_answer_on_another_loopback_name_carries_that_name() -> None:
    async with open_porch(origin="http://localhost:8420") as porch:
        program = await porch.program()
        answer = await program.agreed(await porch.browser())
        assert answer["iss"] == "http://localhost:8420"
        assert (await program.redeem(answer["code"])).status == 200


# ---------------------------------------------------------------- through sign-in


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/authorize?x",
        "//evil.example/authorize?x",
        "/authorize/../../evil",
        "/authorize@evil.example",
        "/authorize.evil.example?x",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/authorize\r\nlocation: https://evil.example?x",
    ],
)
async def test_sign_in_leads_to_our_own_pages_alone(wanted: str) -> None:
    async with open_porch() as porch:
        browser = await porch.browser(signed_in=False)
        await browser.get("/signin?" + urlencode({"next": wanted}))
        reply = await browser.submit(
            "/signin", name="alice", passphrase="four calm herons wading", follow=False
        )
        target = urlsplit(location(reply))
        assert (target.scheme, target.netloc, target.query) == ("", "", "")
        assert target.path in ("/account", "/device")


async def test_a_request_that_a_link_to_sign_in_carries_is_written_anew() -> None:
    async with open_porch() as porch:
        browser = await porch.browser(signed_in=False)
        wanted = "/authorize?x=1&client_id=c\r\nset-cookie: a=b&state=" + "s" * 20_000
        await browser.get("/signin?" + urlencode({"next": wanted}))
        assert max(len(value) for _, value in browser.fields("/signin")) < 9_000
        reply = await browser.submit("/signin", name="alice", passphrase=PASSPHRASE, follow=False)
        assert location(reply) == "/authorize?"


async def test_a_request_comes_through_sign_in_as_it_was_without_what_nobody_knows() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser(signed_in=False)
        request = program.request(scope="mcp mcp:tools", state="a&b=c d%20+")
        path = "/authorize?" + urlencode([*request.items(), ("x", "1"), ("resource", ORIGIN + "/mcp")])
        await browser.get(path, follow=True)
        assert browser.path.startswith("/signin?next=")
        reply = await browser.submit(
            "/signin", name="alice", passphrase="four calm herons wading", follow=False
        )
        arrived = dict(parse_qsl(urlsplit(location(reply)).query))
        assert arrived == {**request, "resource": ORIGIN + "/mcp"}


async def test_a_request_too_long_to_be_carried_through_sign_in_is_refused_at_once() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser(signed_in=False)
        path = path_of(program, ("resource", ORIGIN + "/mcp?" + "%" * 1_500), state="%" * 2_000)
        reply = await browser.get(path, follow=False)
        assert reply.status == 400
        assert "too long" in browser.words


async def test_a_cookie_planted_before_sign_in_is_worth_nothing_after_it() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        victim, thief = await porch.browser(signed_in=False), await porch.browser(signed_in=False)
        await thief.get("/signin")
        victim.jar = dict(thief.jar)
        await victim.get(program.path(), site="cross-site")
        await victim.submit("/signin", name="alice", passphrase="four calm herons wading")
        assert "It may" in victim.words
        assert victim.jar != thief.jar
        reply = await thief.get(program.path(), follow=False)
        assert location(reply).startswith("/signin?next=")
        # Nor does the victim's form work with the thief's cookie.
        fields = victim.fields("/authorize/decide#allow")
        stolen = await thief.post("/authorize/decide", *fields, ("decision", "allow"), ("scope", "mcp"))
        assert stolen.status != 303
        assert await porch.rows("authorization_codes") == []


# ---------------------------------------------------------------- prompt and max_age


async def test_prompt_none_never_shows_a_page() -> None:
    async with open_porch() as porch:
        program = await porch.program(kind="registered", redirect_uris=("https://client.example/cb",))
        stranger, alice = await porch.browser(signed_in=False), await porch.browser()
        path = program.path(prompt="none")
        assert answer_of(await stranger.get(path, follow=False))["error"] == "login_required"
        assert answer_of(await alice.get(path, follow=False))["error"] == "consent_required"
        await program.agreed(alice)
        assert "code" in answer_of(await alice.get(path, follow=False))


@pytest.mark.parametrize("wish", [{"prompt": "login"}, {"max_age": "120"}, {"max_age": "0"}])
async def test_a_program_may_want_a_fresh_sign_in(wish: dict[str, str]) -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser: Browser = await porch.browser()
        assert (await browser.get(program.path(**wish), follow=False)).status == 200
        porch.clock.now += 121_000
        before = dict(browser.jar)
        await browser.get(program.path(**wish))
        assert browser.path.endswith("&again=1")
        await browser.submit("/signin", name="alice", passphrase="wrong wrong wrong")
        assert "do not go together" in browser.words
        await browser.submit("/signin", name="alice", passphrase="four calm herons wading")
        assert "It may" in browser.words
        assert browser.jar != before
        await press(browser, "allow")
        (row,) = await porch.rows("authorization_codes")
        assert row["auth_time"] == porch.clock.now


async def test_a_fresh_sign_in_cannot_be_had_silently() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await program.agreed(browser)
        porch.clock.now += 121_000
        reply = await browser.get(program.path(prompt="none", max_age="60"), follow=False)
        assert answer_of(reply)["error"] == "login_required"


# ---------------------------------------------------------------- whatever comes


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*authorize.NAMES, authorize.RESOURCE, "x"]),
            st.one_of(
                st.text(max_size=60), st.sampled_from(["code", "S256", CHALLENGE, CALLBACK, "mcp", "none"])
            ),
        ),
        max_size=12,
    )
)
def test_no_request_crashes_and_none_is_sent_anywhere_but_to_its_client(pairs: list[tuple[str, str]]) -> None:
    client = _client()
    asked = authorize.read(pairs)
    site = Site(issuer=ORIGIN, loopback=True, servers={"agent": "/mcp"})
    match authorize.check(asked, client, site, ORIGIN):
        case SendBack() as back:
            assert authorize.answer(back, issuer=ORIGIN).startswith(CALLBACK + "?")
        case WantedAccess() as wanted:
            assert wanted.redirect_uri == CALLBACK
            again = authorize.check(authorize.read_text(authorize.write(asked)), client, site, ORIGIN)
            assert again == wanted, "what sign-in carries along means the same"
        case NoPlace():
            pass


def _client() -> authorize.Client:
    return authorize.Client(
        id="c", kind="dynamic", name="c", auth_method="none", grant_types=("authorization_code",),
        redirect_uris=(CALLBACK,), scope="*", state="enabled", created_at=0, last_used_at=None, secret_hash=None,
    )  # fmt: skip
