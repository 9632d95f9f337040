"""Signing in with a provider's word, against providers on real sockets: the way there and back, and everybody who must not pass."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from msgspec.structs import replace

from auth.providers.provider_requests import Upstreams
from auth.providers.provider_sign_in import Provider
from auth.values.http_messages import WireReply
from server.lib.oauth_client.oauth_fetcher import OAuthFetcher
from server.lib.secret import Secret
from tests.auth.browser_fakes import (
    PUBLIC,
    Browser,
    House,
    header,
    live_sessions,
    location,
    session_row,
)
from tests.auth.upstream_fakes import CLIENT, SECRET, FakeProvider, Key, provided

MINUTE = 60_000
ALLOW = {"sub-of-ann": "alice", "email:bob@example.org": "bob"}
ALLOW_GITHUB = {"583231": "alice", "login:bob-there": "bob"}


@contextmanager
def at(house: House, *, github: bool = False, **changes: Any) -> Generator[FakeProvider]:
    """The house with one provider, called `there`."""
    with provided(lambda: house.time, github=github) as fake:
        provider = Provider(
            name="there",
            kind="github" if github else "oidc",
            label="Example Ltd",
            issuer=fake.origin,
            client_id=CLIENT,
            secret=Secret(SECRET),
            allow=ALLOW_GITHUB if github else ALLOW,
        )
        providers = {"there": replace(provider, **changes)}
        house.parts = replace(
            house.parts,
            upstreams=Upstreams(providers, OAuthFetcher(), lambda: house.time),
        )
        yield fake


async def leave(browser: Browser, *, landing: str = "/device") -> str:
    """The provider's address that the button leads to."""
    await browser.get(f"/signin?next={landing}")
    reply = await browser.submit("/signin/with/there", follow=False)
    assert reply.status == 303, browser.words
    return location(reply)


async def come_back(browser: Browser, url: str, *, follow: bool = True, **changes: str | None) -> WireReply:
    parts = urlsplit(url)
    query = {name: found[0] for name, found in parse_qs(parts.query).items()} | changes
    sent = urlencode({name: value for name, value in query.items() if value is not None})
    return await browser.get(f"{parts.path}?{sent}", site="cross-site", follow=follow)


async def sign_in(browser: Browser, fake: FakeProvider, **changes: str | None) -> WireReply:
    return await come_back(browser, fake.agree(await leave(browser)), follow=True, **changes)


def refusals(house: House) -> list[str]:
    return [
        row["reason"].partition(": ")[2]
        for row in house.rows("audit")
        if row["event"] == "user.signed_in" and row["outcome"] == "refused"
    ]


# ---------------------------------------------------------------- the way there and back


async def test_a_listed_person_is_signed_in_and_lands_where_they_were_going() -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        code = house.ask()
        await browser.get(f"/device?user_code={code}", follow=True)
        before = dict(browser.jar)
        reply = await browser.submit("/signin/with/there", follow=False)
        page = await come_back(browser, fake.agree(location(reply)))
        assert page.status == 200 and "Let this device use" in browser.words
        assert browser.jar != before
        row = session_row(house, browser)
        assert row is not None and row["user_id"] == house.owner_id and row["auth_time"] == house.time
        (identity,) = house.rows("user_identities")
        assert (identity["provider"], identity["subject"]) == ("there", "sub-of-ann")
        assert house.audited("user.signed_in") == ["ok"]


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256"])
async def test_every_algorithm_of_the_list_is_understood(algorithm: str) -> None:
    house = House().owned()
    with at(house) as fake:
        fake.key = Key(algorithm, "k")
        fake.published = [{"kty": "unheard of"}, Key("ES256", "other").jwk, fake.key.jwk]
        assert (await sign_in(Browser(house), fake)).status == 200
        assert len(live_sessions(house)) == 1


async def test_a_verified_address_is_a_subject_too() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    with at(house) as fake:
        fake.subject = "sub-of-bob"
        fake.claims = {"email": "Bob@Example.org", "email_verified": True}
        await sign_in(Browser(house), fake)
        assert [row["user_id"] for row in live_sessions(house)] == ["usr_bob"]


async def test_github_is_understood_by_number_and_by_login() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    with at(house, github=True) as fake:
        assert (await sign_in(Browser(house), fake)).status == 200
        fake.user = {"id": 99, "login": "Bob-There"}
        assert (await sign_in(Browser(house), fake)).status == 200
        assert [row["user_id"] for row in live_sessions(house)] == [house.owner_id, "usr_bob"]


async def test_an_invited_person_who_is_listed_joins_and_their_link_is_over() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob", state="invited")
    with at(house, allow={"sub-of-ann": "bob"}) as fake:
        await sign_in(Browser(house), fake)
        row = house.store.db.fetch_one("SELECT state FROM users WHERE id = 'usr_bob'")
        assert row is not None and row["state"] == "enabled"
        assert house.audited("user.joined") == ["ok"]
        assert ("user", "usr_bob") in [(row["kind"], row["entity_id"]) for row in house.rows("changes")]


async def test_what_is_kept_of_a_sign_in_is_sealed() -> None:
    house = House().owned()
    with at(house):
        url = await leave(Browser(house))
        query = parse_qs(urlsplit(url).query)
        (row,) = house.rows("upstream_logins")
        stored = " ".join(str(value) for value in row.values())
        assert query["state"][0] not in stored and query["nonce"][0] not in stored
        assert query["redirect_uri"] == [f"{house.origin}/signin/with/there/callback"]
        assert "email" in query["scope"][0].split()


async def test_documents_of_a_provider_are_asked_for_once_an_hour_and_new_keys_at_once() -> None:
    house = House().owned()
    with at(house) as fake:
        for _ in range(3):
            await sign_in(Browser(house), fake)
        assert fake.asked.count("GET /.well-known/openid-configuration") == 1
        assert fake.asked.count("GET /keys") == 1
        fake.key = Key("RS256", "second")
        fake.published = [fake.key.jwk]
        house.time += MINUTE
        assert (await sign_in(Browser(house), fake)).status == 200
        assert fake.asked.count("GET /keys") == 2
        house.time += 61 * MINUTE
        await sign_in(Browser(house), fake)
        assert fake.asked.count("GET /.well-known/openid-configuration") == 2


async def test_unknown_keys_do_not_make_us_ask_again_and_again() -> None:
    house = House().owned()
    with at(house) as fake:
        await sign_in(Browser(house), fake)
        fake.header = {"kid": "nobody knows"}
        for _ in range(5):
            assert (await sign_in(Browser(house), fake)).status == 403
        assert fake.asked.count("GET /keys") == 1


async def test_a_provider_that_wants_the_secret_in_the_form_gets_it_there() -> None:
    house = House().owned()
    with at(house) as fake:
        fake.discovery = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        assert (await sign_in(Browser(house), fake)).status == 200
        assert len(live_sessions(house)) == 1


async def test_a_provider_whose_pages_are_elsewhere_is_reached_by_a_page_of_ours() -> None:
    house = House().owned()
    with at(house) as fake:
        fake.discovery = {
            "authorization_endpoint": "https://pages.example/start?tenant=1",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }
        browser = Browser(house)
        await browser.get("/signin")
        page = await browser.submit("/signin/with/there", follow=False)
        assert page.status == 200 and "Off to Example Ltd" in browser.words
        assert 'href="https://pages.example/start?tenant=1&amp;response_type=code' in browser.text


async def test_the_sign_in_page_may_lead_to_the_provider_and_nowhere_else() -> None:
    house = House(PUBLIC, loopback=False).owned()
    with at(house) as fake:
        page = await Browser(house).get("/signin")
        policy = header(page, "content-security-policy") or ""
        assert f"form-action 'self' {fake.origin};" in policy + ";"


# ---------------------------------------------------------------- nobody gets past


LIES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another nonce": ({"nonce": "of another"}, {}, "answers another request"),
    "no nonce": ({"nonce": None}, {}, "answers another request"),
    "another audience": ({"aud": "another program"}, {}, "meant for another program"),
    "no audience": ({"aud": None}, {}, "meant for another program"),
    "two audiences and no party": ({"aud": [CLIENT, "x"]}, {}, "given to another program"),
    "another party": ({"azp": "another program"}, {}, "given to another program"),
    "another issuer": ({"iss": "https://evil.example"}, {}, "another issuer's"),
    "no issuer": ({"iss": None}, {}, "another issuer's"),
    "no end": ({"exp": None}, {}, "no time"),
    "an end that is true": ({"exp": True}, {}, "no time"),
    "an end in words": ({"exp": "tomorrow"}, {}, "no time"),
    "nobody": ({"sub": ""}, {}, "names nobody"),
    "a number": ({"sub": 5}, {}, "names nobody"),
    "an endless name": ({"sub": "x" * 256}, {}, "names nobody"),
    "no signature": ({}, {"alg": "none"}, "no compact JWS"),
    "a signature with the shared secret": ({}, {"alg": "HS256"}, "algorithm is not accepted"),
    "an algorithm of another key": ({}, {"alg": "RS256"}, "not the provider's"),
    "a critical extension": ({}, {"crit": ["exp"]}, "algorithm is not accepted"),
    "another kind of token": ({}, {"typ": "at+jwt"}, "another kind"),
    "a key of another name": ({}, {"kid": "another"}, "no usable key"),
    "a name that is no text": ({}, {"kid": 5}, "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_no_lie_in_an_id_token_is_believed(lie: str) -> None:
    house = House().owned()
    with at(house) as fake:
        fake.claims, fake.header, reason = LIES[lie]
        browser = Browser(house)
        page = await sign_in(browser, fake)
        assert page.status == 403 and "is not valid" in browser.words
        assert live_sessions(house) == [] and reason in refusals(house)[0]


@pytest.mark.parametrize(("claims", "fine"), [
    ({"exp": -61}, False),
    ({"exp": -59}, True),
    ({"iat": 61}, False),
    ({"iat": 59}, True),
    ({"iat": -11 * 60 - 1}, False),
])  # fmt: skip
async def test_times_are_judged_with_a_minutes_grace(claims: dict[str, int], fine: bool) -> None:
    house = House().owned()
    with at(house) as fake:
        fake.claims = {name: house.time // 1_000 + offset for name, offset in claims.items()}
        assert (await sign_in(Browser(house), fake)).status == (200 if fine else 403)


async def test_a_signature_by_somebody_elses_key_is_not_the_providers() -> None:
    house = House().owned()
    with at(house) as fake:
        fake.key = Key("ES256", "first")  # the same name; what is published is another
        assert (await sign_in(Browser(house), fake)).status == 403
        assert "not the provider's" in refusals(house)[0]


@pytest.mark.parametrize(("subject", "claims"), [
    ("somebody else", {}),
    ("SUB-OF-ANN", {}),
    ("bob@example.org", {}),
    ("email:bob@example.org", {}),
    ("x", {"email": "bob@example.org"}),
    ("x", {"email": "bob@example.org", "email_verified": False}),
    ("x", {"email": "bob@example.org", "email_verified": "true"}),
    ("x", {"email": "bob@example.org", "email_verified": 1}),
    ("x", {"email": "bob@example.org.evil.example", "email_verified": True}),
    ("x", {"email": ["bob@example.org"], "email_verified": True}),
])  # fmt: skip
async def test_nobody_is_let_in_who_is_not_on_the_list(subject: str, claims: dict[str, Any]) -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    with at(house) as fake:
        fake.subject, fake.claims = subject, claims
        browser = Browser(house)
        page = await sign_in(browser, fake)
        assert page.status == 403 and "this server does not" in browser.words
        assert "Ask whoever runs this server" in browser.words
        assert live_sessions(house) == [] and refusals(house)[0].startswith("not listed")


@pytest.mark.parametrize("user", [
    {"id": 1, "login": "somebody"},
    {"id": "583231", "login": "somebody"},
    {"id": True, "login": "somebody"},
    {"login": "583231"},
    {"id": 583231},
    {},
])  # fmt: skip
async def test_nobody_is_let_in_who_is_not_on_githubs_list(user: dict[str, Any]) -> None:
    house = House().owned()
    with at(house, github=True) as fake:
        fake.user = user
        assert (await sign_in(Browser(house), fake)).status == 403
        assert live_sessions(house) == []


async def test_a_login_that_passes_to_another_account_does_not_bring_it_in() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    with at(house, github=True) as fake:
        fake.user = {"id": 99, "login": "bob-there"}
        await sign_in(Browser(house), fake)
        fake.user = {"id": 100, "login": "bob-there"}
        browser = Browser(house)
        page = await sign_in(browser, fake)
        assert page.status == 403 and "under that name before" in browser.words
        assert len(live_sessions(house)) == 1


@pytest.mark.parametrize("state", ["disabled", "locked", "unclaimed"])
async def test_an_account_that_is_not_open_is_not_opened_by_a_provider(state: str) -> None:
    house = House().owned()
    house.store.db.execute("UPDATE users SET state = ?", state)
    with at(house) as fake:
        browser = Browser(house)
        assert (await sign_in(browser, fake)).status == 403
        assert live_sessions(house) == [] and house.rows("user_identities") == []
        assert house.rows("users")[0]["state"] == state


@pytest.mark.parametrize("state", ["enabled", "invited"])
async def test_an_account_whose_time_is_over_is_not_opened(state: str) -> None:
    house = House().owned()
    house.store.db.execute("UPDATE users SET expires_at = ?, state = ?", house.time, state)
    with at(house) as fake:
        assert (await sign_in(Browser(house), fake)).status == 403
        assert live_sessions(house) == []


async def test_a_listed_name_that_nobody_has_here_opens_nothing_and_makes_no_account() -> None:
    house = House().owned()
    with at(house, allow={"sub-of-ann": "nobody"}) as fake:
        assert (await sign_in(Browser(house), fake)).status == 403
        assert len(house.rows("users")) == 1


# ---------------------------------------------------------------- the way back counts once, in one browser


async def test_the_way_back_counts_once() -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        url = await leave(browser)
        jar = dict(browser.jar)
        await come_back(browser, fake.agree(url))
        browser.jar = jar
        assert (await come_back(browser, fake.agree(url))).status == 400
        assert "This sign-in has ended" in browser.words and len(live_sessions(house)) == 1


@pytest.mark.parametrize("state", ["", "x", "x" * 5_000, None, "\udcff"])
async def test_a_state_that_was_not_given_out_opens_nothing(state: str | None) -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        url = fake.agree(await leave(browser))
        sent = state.encode(errors="replace").decode() if state else state
        assert (await come_back(browser, url, state=sent)).status == 400
        assert live_sessions(house) == [] and "POST /token" not in fake.asked


async def test_what_one_browser_began_another_cannot_finish() -> None:
    """Neither can somebody be signed in as somebody else by a link, nor a stolen answer be used."""
    house = House().owned()
    with at(house) as fake:
        mine, theirs = Browser(house), Browser(house)
        url = fake.agree(await leave(mine))
        await theirs.get("/signin")
        assert (await come_back(theirs, url)).status == 400
        assert (await come_back(Browser(house), url)).status == 400  # one without a cookie
        assert live_sessions(house) == []
        assert (await come_back(mine, url)).status == 200  # and it was not used up


async def test_after_ten_minutes_it_is_over() -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        url = fake.agree(await leave(browser))
        house.time += 10 * MINUTE
        assert (await come_back(browser, url)).status == 400


async def test_the_answer_of_one_provider_is_none_of_anothers() -> None:
    house = House().owned()
    with at(house) as fake:
        first = house.parts.upstreams.providers["there"]
        both = {"there": first, "other": replace(first, name="other")}
        house.parts = replace(
            house.parts,
            upstreams=Upstreams(both, OAuthFetcher(), lambda: house.time),
        )
        browser = Browser(house)
        url = fake.agree(await leave(browser)).replace("/with/there/", "/with/other/")
        assert (await come_back(browser, url)).status == 400
        assert "POST /token" not in fake.asked


@pytest.mark.parametrize("iss", ["https://evil.example", "", None])
async def test_an_answer_in_another_providers_name_is_not_redeemed(iss: str | None) -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        assert (await sign_in(browser, fake, iss=iss)).status == 403
        assert "POST /token" not in fake.asked and refusals(house) == ["the answer is another issuer's"]


async def test_the_button_works_from_our_own_page_only() -> None:
    house = House().owned()
    with at(house):
        browser = Browser(house)
        await browser.get("/signin")
        fields = browser.fields("/signin/with/there")
        assert (await browser.get("/signin/with/there")).status == 405
        assert (await browser.post("/signin/with/there", *fields, site="cross-site")).status == 403
        assert (await browser.post("/signin/with/there", ("next", "/device"))).status == 403
        assert (await browser.post("/signin/with/nobody", *fields)).status == 404
        assert house.rows("upstream_logins") == []


@pytest.mark.parametrize("landing", ["https://evil.example", "//evil.example", "/device/../..//evil", "/mcp"])
async def test_it_never_leads_out_of_the_house(landing: str) -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        await browser.get("/signin")
        reply = await browser.submit("/signin/with/there", next=landing, follow=False)
        back = await come_back(browser, fake.agree(location(reply)), follow=False)
        assert back.status == 303 and location(back) in ("/account", "/device")


async def test_sign_ins_are_counted_like_all_others() -> None:
    house = House().owned()
    with at(house):
        for _ in range(30):
            await leave(Browser(house))
        browser = Browser(house)
        await browser.get("/signin")
        assert (await browser.submit("/signin/with/there")).status == 429


async def test_good_sign_ins_are_taken_back_and_those_that_came_to_nothing_stay() -> None:
    house = House().owned()
    with at(house) as fake:
        await leave(Browser(house))
        for _ in range(40):
            browser = Browser(house)
            back = await come_back(browser, fake.agree(await leave(browser)), follow=False)
            assert back.status == 303
        assert len(house.rows("attempts")) == 1


async def test_a_good_sign_in_makes_no_room_at_another_network() -> None:
    house = House().owned()
    with at(house) as fake:
        await leave(Browser(house, ip="198.51.100.1"))
        house.time += 1_000
        browser = Browser(house)
        link = fake.agree(await leave(browser))
        browser.ip = "198.51.100.1"
        assert (await come_back(browser, link, follow=False)).status == 303
        assert len(house.rows("attempts")) == 2


# ---------------------------------------------------------------- a provider in trouble


@pytest.mark.parametrize("answer", [
    (500, b"{}"), (404, b"{}"), (200, b""), (200, b"["), (200, b"[]"), (200, b"null"), (200, b"[" * 100_000),
    (200, b"{}"), (200, b'{"issuer":"https://evil.example"}'), (302, b""), (200, b" " * 300_000),
])  # fmt: skip
async def test_a_provider_that_answers_nonsense_is_said_so_and_nothing_began(
    answer: tuple[int, bytes],
) -> None:
    house = House().owned()
    with at(house) as fake:
        fake.broken["/.well-known/openid-configuration"] = answer
        browser = Browser(house)
        await browser.get("/signin")
        page = await browser.submit("/signin/with/there")
        assert page.status == 502 and "Example Ltd is not available" in browser.words
        assert house.rows("upstream_logins") == []
        fake.broken.clear()
        assert (await sign_in(Browser(house), fake)).status == 200


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "address",
    [
        "http://plain.example/x", "ftp://x", "", None, "https://a@b/", "javascript:alert(1)",
        "https://10.0.0.1/x", "https://169.254.169.254/x",
    ],
)  # fmt: skip
async def test_addresses_in_a_document_are_https_or_here(name: str, address: str | None) -> None:
    house = House().owned()
    with at(house) as fake:
        fake.discovery = {name: address}
        browser = Browser(house)
        await browser.get("/signin")
        assert (await browser.submit("/signin/with/there")).status == 502


async def test_a_provider_that_is_not_there_is_said_so() -> None:
    house = House().owned()
    with at(house) as fake:
        origin = fake.origin
    with at(house, issuer=origin):
        browser = Browser(house)
        await browser.get("/signin")
        page = await browser.submit("/signin/with/there")
        assert page.status == 502 and "connection refused" in browser.words
        assert origin not in browser.words.partition("is not available")[2]


@pytest.mark.parametrize("path", ["/token", "/keys"])
async def test_a_provider_that_breaks_down_on_the_way_back_can_be_tried_again(path: str) -> None:
    house = House().owned()
    with at(house) as fake:
        fake.broken[path] = (503, b"")
        browser = Browser(house)
        page = await sign_in(browser, fake)
        assert page.status == 502 and "Back to sign in" in browser.words
        fake.broken.clear()
        assert (await sign_in(browser, fake)).status == 200


@pytest.mark.parametrize(
    "said",
    [
        {"error": "access_denied", "code": None},
        {"error": "server_error"},
        {"code": None},
        {"code": ""},
        {"code": "x" * 5_000},
    ],
)
async def test_who_says_no_there_gets_a_page_here(said: dict[str, str | None]) -> None:
    house = House().owned()
    with at(house) as fake:
        browser = Browser(house)
        page = await sign_in(browser, fake, **said)
        assert page.status == 403 and "Not signed in with Example Ltd" in browser.words
        assert "POST /token" not in fake.asked and live_sessions(house) == []


async def test_a_code_that_the_provider_refuses_signs_nobody_in() -> None:
    for github in (False, True):
        house = House().owned()
        with at(house, github=github) as fake:
            assert (await sign_in(Browser(house), fake, code="made up")).status == 403
            assert refusals(house) == ["the code was not accepted (invalid_grant)"]


async def test_nothing_of_it_is_there_where_none_is_configured() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.get("/signin")
    assert "/signin/with/" not in browser.text
    assert (await browser.get("/signin/with/there/callback?state=x&code=y")).status == 404
