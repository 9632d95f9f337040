"""The login through a browser, against a server of somebody else: what is sent, what is believed, and who we are there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import trio
from fake_server import FakeServer, Response, Seen, as_json
from screens import Screen, follow

from server.client import callback_page, loopback
from server.client.access_token import Access
from server.client.client_errors import ClientError, ClientUnknown, LoginDenied, LoginError, LoginExpired
from server.client.device_login import end
from server.client.signing_in import Wish, sign_in
from server.client.token_file import StoredLogin, TokenFile
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.client_identity import BASIC, POST, ClientIdentity
from server.lib.secret import Secret


async def log_in(
    fake: FakeServer, file: TokenFile, client: HttpClient, screen: Screen, **wish: Any
) -> StoredLogin:
    with trio.fail_after(60):
        return await sign_in(client, file, fake.url, screen=screen, wish=Wish(**wish))


async def test_a_server_of_somebody_else_is_logged_in_to_through_a_browser(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    screen = Screen()
    login = await log_in(foreign, file, client, screen)
    (registered,) = foreign.requests("/register")
    (asked,) = foreign.requests("/authorize")
    (redeemed,) = foreign.requests("/token")
    uri = asked.asked["redirect_uri"]
    assert urlsplit(uri).hostname == "127.0.0.1"
    assert urlsplit(uri).path == "/callback"
    assert registered.message["redirect_uris"] == [uri]
    assert registered.message["token_endpoint_auth_method"] == "none"
    assert registered.message["grant_types"] == ["authorization_code", "refresh_token"]
    assert asked.asked["resource"] == redeemed.form["resource"] == foreign.url
    assert asked.asked["code_challenge_method"] == "S256"
    assert asked.asked["scope"] == "mcp"
    assert 43 <= len(redeemed.form["code_verifier"]) <= 128
    assert redeemed.form["redirect_uri"] == uri
    assert (login.client_id, login.client_secret) == ("client-1", None)
    assert f"You are logged in to {urlsplit(foreign.url).netloc}" in screen.pages[0][-1].text
    assert "go back to the terminal" in screen.pages[0][-1].text
    assert file.get(foreign.url) == login


async def test_a_second_login_comes_as_the_client_of_the_first(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    first = await log_in(foreign, file, client, Screen())
    second = await log_in(foreign, file, client, Screen())
    assert foreign.count["registered"] == 1
    assert first.client_id == second.client_id
    uris = {request.asked["redirect_uri"] for request in foreign.requests("/authorize")}
    assert len(uris) == 1  # a server that compares ports finds the one it knows


async def test_a_registered_port_that_is_taken_means_a_new_registration(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    await log_in(foreign, file, client, Screen())
    port = urlsplit(foreign.requests("/authorize")[0].asked["redirect_uri"]).port
    assert port is not None
    (taken,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    async with taken:
        login = await log_in(foreign, file, client, Screen())
    assert login.client_id == "client-2"


async def test_a_port_that_was_named_and_is_taken_is_said_with_a_way_out(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    (taken,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with taken:
        port = taken.socket.getsockname()[1]
        with pytest.raises(LoginError, match=str(port)) as refused:
            await log_in(foreign, file, client, Screen(), port=port)
    assert "--port" in str(refused.value.hint)


async def test_a_server_that_forgot_us_is_introduced_to_again_once(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    await log_in(foreign, file, client, Screen())
    foreign.clients.clear()
    screen = Screen()
    login = await log_in(foreign, file, client, screen)
    assert login.client_id == "client-2"
    assert len(screen.links) == 1  # the browser never saw the link that leads nowhere


async def test_a_client_that_the_token_endpoint_refuses_is_registered_again_only_once(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    await log_in(foreign, file, client, Screen())

    async def refuse(request: Seen) -> Response:
        return as_json({"error": "invalid_client"}, 401)

    foreign.overrides["/token"] = refuse
    with pytest.raises(ClientUnknown):
        await log_in(foreign, file, client, Screen())
    assert foreign.count["registered"] == 2


@pytest.mark.parametrize("method", [POST, BASIC])
async def test_a_server_that_insists_on_a_secret_gets_it_the_way_it_wants_it(
    foreign: FakeServer, file: TokenFile, client: HttpClient, method: str
) -> None:
    foreign.insists_on = method
    login = await log_in(foreign, file, client, Screen())
    assert login.auth_method == method
    assert login.client_secret == Secret("s3cret: /+%")
    assert "s3cret" not in repr(login)
    foreign.valid.clear()
    access = Access(file, foreign.url, client=client)
    renewed = await access.renew(login.access_token)
    assert foreign.count["refreshed"] == 1
    kept = file.get(foreign.url)
    assert kept is not None
    assert kept.access_token == renewed
    assert await end(client, kept)
    (revoked,) = foreign.requests("/revoke")
    shown = revoked.headers.get("authorization", "") if method == BASIC else revoked.form["client_secret"]
    assert shown.startswith("Basic " if method == BASIC else "s3cret")


async def test_a_refresh_that_the_server_refuses_for_the_client_forgets_the_registration(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    login = await log_in(foreign, file, client, Screen())
    foreign.clients = {"another": {}}
    with pytest.raises(ClientError, match="has ended"):
        await Access(file, foreign.url, client=client).renew(login.access_token)
    assert file.registration(foreign.origin, "authorization_code") is None


async def test_without_registration_a_client_has_to_be_named(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    del foreign.metadata["registration_endpoint"]
    with pytest.raises(LoginError, match="register itself") as refused:
        await log_in(foreign, file, client, Screen())
    assert "--client-id" in str(refused.value.hint)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    uri = f"http://127.0.0.1:{port}/callback"
    foreign.clients["by-hand"] = {
        "redirect_uris": [uri],
        "token_endpoint_auth_method": BASIC,
        "client_secret": "it: is %",
    }
    identity = ClientIdentity(client_id="by-hand", secret=Secret("it: is %"), method=BASIC)
    login = await log_in(foreign, file, client, Screen(), identity=identity, port=port)
    assert login.client_id == "by-hand"
    assert foreign.count["registered"] == 0


async def test_a_refused_registration_is_told_in_the_servers_words(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    async def refuse(request: Seen) -> Response:
        return as_json({"error": "invalid_client_metadata", "error_description": "by appointment only"}, 400)

    foreign.overrides["/register"] = refuse
    with pytest.raises(LoginError, match="by appointment only"):
        await log_in(foreign, file, client, Screen())


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"client_id": 5},
        {"client_id": "x", "token_endpoint_auth_method": "private_key_jwt"},
        {"client_id": "x", "token_endpoint_auth_method": "client_secret_post"},
        {"client_id": "x\r\ny"},
    ],
)
async def test_a_registration_that_cannot_be_used_is_refused(
    foreign: FakeServer, file: TokenFile, client: HttpClient, made: Any
) -> None:
    async def answer(request: Seen) -> Response:
        return as_json(made, 201)

    foreign.overrides["/register"] = answer
    with pytest.raises(ClientError, match="cannot be used"):
        await log_in(foreign, file, client, Screen())


@pytest.mark.parametrize(
    ("answered", "kind", "said"),
    [
        ({"iss": "https://evil.example"}, LoginError, "not from"),
        ({"iss": None}, LoginError, "no name"),
        ({"code": None, "error": "access_denied"}, LoginDenied, "denied"),
        ({"code": None, "error": "invalid_scope"}, LoginError, "scopes"),
        (
            {"code": None, "error": "server_error", "error_description": "the moon"},
            LoginError,
            "server_error.*the moon",
        ),
        ({"code": None}, LoginError, "without a code"),
    ],
)
async def test_an_answer_that_is_none_ends_the_login_and_says_why(
    foreign: FakeServer,
    file: TokenFile,
    client: HttpClient,
    answered: dict[str, str | None],
    kind: type[LoginError],
    said: str,
) -> None:
    foreign.answered = answered
    screen = Screen()
    with pytest.raises(kind, match=said):
        await log_in(foreign, file, client, screen)
    assert "not logged in" in screen.pages[0][-1].text
    assert foreign.requests("/token") == []
    assert file.get(foreign.url) is None


async def test_a_wrong_issuer_is_refused_even_where_none_was_promised(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    del foreign.metadata["authorization_response_iss_parameter_supported"]
    foreign.answered = {"iss": foreign.origin + "/"}
    with pytest.raises(LoginError, match="not from"):
        await log_in(foreign, file, client, Screen())
    foreign.answered = {"iss": None}
    assert (await log_in(foreign, file, client, Screen())).issuer == foreign.origin


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_a_server_without_s256_is_not_trusted_with_a_browser(
    foreign: FakeServer, file: TokenFile, client: HttpClient, methods: list[str] | None
) -> None:
    foreign.metadata["code_challenge_methods_supported"] = methods
    with pytest.raises(LoginError, match="S256"):
        await log_in(foreign, file, client, Screen())
    assert foreign.requests("/authorize") == []


async def test_neither_other_programs_nor_wrong_addresses_end_or_answer_the_wait(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    async def pester(link: str) -> list[int]:
        uri = parse_qs(urlsplit(link).query)["redirect_uri"][0]
        state = parse_qs(urlsplit(link).query)["state"][0]
        base = uri.removesuffix("/callback")
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as other:
            answers = [
                await other.get(f"{base}/favicon.ico"),
                await other.get(f"{uri}?code=theirs"),
                await other.get(f"{uri}?code=theirs&state=guess"),
                await other.get(f"{uri}?error=access_denied"),
                await other.get(f"{uri}?state={state}&state={state}&code=theirs"),
                await other.post(uri, content=b"code=theirs"),
                await other.get(f"{uri}?code=theirs&state={state}", headers={"Host": "evil.example"}),
                await other.get(f"{uri}?{'x' * 20_000}"),
            ]
        async with await trio.open_tcp_stream("127.0.0.1", urlsplit(uri).port or 0) as raw:
            await raw.send_all(b"\x16\x03\x01 this is no http\r\n\r\n")
            assert (await raw.receive_some()).startswith(b"HTTP/1.1 400")
        await follow(link)
        return [answer.status_code for answer in answers]

    screen = Screen(browse=pester)
    login = await log_in(foreign, file, client, screen)
    assert screen.pages == [[404, 400, 400, 400, 400, 405, 403, 400]]
    assert login.client_id == "client-1"
    assert len(foreign.requests("/token")) == 1


async def test_only_the_first_answer_counts(foreign: FakeServer, file: TokenFile, client: HttpClient) -> None:
    async def twice(link: str) -> list[int]:
        pages = await follow(link)
        answers = [pages[-1].status_code]
        try:
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as again:
                answers.append((await again.get(str(pages[-1].url))).status_code)
        except httpx2.TransportError:
            answers.append(0)  # it had closed already
        return answers

    screen = Screen(browse=twice)
    await log_in(foreign, file, client, screen)
    assert screen.pages[0][0] == 200
    assert screen.pages[0][1] in (0, 400)
    assert len(foreign.requests("/token")) == 1


async def test_the_page_says_that_it_failed_where_the_code_is_not_taken(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    async def refuse(_: Seen) -> Response:
        return as_json({"error": "invalid_grant"}, status=400)

    foreign.overrides["/token"] = refuse
    screen = Screen()
    with pytest.raises(LoginError):
        await log_in(foreign, file, client, screen)
    page, host = screen.pages[0][-1].text, urlsplit(foreign.url).netloc
    assert f"You were not logged in to {host}" in page
    assert "does not take this code" in page
    assert "You are logged in" not in page


async def test_the_page_calls_the_server_as_it_calls_itself(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    async def named(_: Seen) -> Response:
        return as_json({**foreign.resource_metadata(), "resource_name": "Support <desk>"})

    foreign.overrides["/.well-known/oauth-protected-resource/mcp"] = named
    screen = Screen()
    await log_in(foreign, file, client, screen)
    assert "You are logged in to Support &lt;desk&gt;" in screen.pages[0][-1].text


async def test_a_page_does_not_wait_for_ever_for_what_became_of_its_answer(
    foreign: FakeServer, file: TokenFile, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "OUTCOME_SECONDS", 0)
    screen = Screen()
    await log_in(foreign, file, client, screen)
    assert "The answer has arrived" in screen.pages[0][-1].text


def test_what_a_server_calls_itself_stays_a_short_text_on_a_page_that_may_load_nothing() -> None:
    page = callback_page.html(
        callback_page.logged_in("<script>\u202e" + "x" * 500, "127.0.0.1:8420")
    ).decode()
    assert "&lt;script&gt;xxx" in page and "\u202e" not in page and "x" * 81 not in page
    assert "<script" not in page and "src=" not in page and "http" not in page
    policy = callback_page.policy()
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy


@pytest.mark.parametrize("shape", ["{url}", "  '{url}'\n", "?{query}", "{query}"])
async def test_the_last_address_of_a_browser_elsewhere_can_be_pasted(
    foreign: FakeServer, file: TokenFile, client: HttpClient, shape: str
) -> None:
    screen = Screen(browse=None)
    said: list[str] = []

    async def elsewhere() -> None:
        await screen.shown.wait()
        assert screen.paste is not None
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as browser:
            url = (await browser.get(screen.links[0])).headers["location"]
        said.append(screen.paste("what is this"))
        said.append(screen.paste(screen.links[0]))
        said.append(screen.paste(url.replace("state=", "state=x")))
        said.append(screen.paste(shape.format(url=url, query=urlsplit(url).query)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(elsewhere)
        login = await log_in(foreign, file, client, screen)
    assert login.client_id == "client-1"
    assert [line.startswith("The answer has arrived") for line in said] == [False, False, False, True]


async def test_nobody_answering_ends_the_login_with_the_time(
    foreign: FakeServer, file: TokenFile, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.client.signing_in.BROWSER_SECONDS", 0.05)
    with pytest.raises(LoginExpired, match="in time"):
        await log_in(foreign, file, client, Screen(browse=None))


async def test_the_port_is_closed_when_the_login_is_over(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    await log_in(foreign, file, client, Screen())
    port = urlsplit(foreign.requests("/authorize")[0].asked["redirect_uri"]).port
    with pytest.raises(OSError):
        await trio.open_tcp_stream("127.0.0.1", port or 0)


async def test_the_code_comes_first_where_it_is_offered_and_the_browser_where_it_is_asked_for(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    grants = fake.server_metadata()["grant_types_supported"]
    fake.browser_only()
    fake.metadata["grant_types_supported"] = [*grants, "authorization_code"]
    by_code, by_browser = Screen(), Screen()
    await log_in(fake, file, client, by_code)
    await log_in(fake, file, client, by_browser, way="browser")
    assert (len(by_code.codes), by_code.links) == (1, [])
    assert (by_browser.codes, len(by_browser.links)) == ([], 1)
    assert [request.message["grant_types"][0] for request in fake.requests("/register")] == [
        "urn:ietf:params:oauth:grant-type:device_code",
        "authorization_code",
    ]


async def test_an_ostiary_is_come_to_as_the_client_that_it_names(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    foreign.metadata["ostiary_client_id"] = "ostiary-cli"
    foreign.metadata["scopes_supported"] = ["mcp", "offline_access"]

    async def any_port(request: Seen) -> Response:
        foreign.clients["ostiary-cli"] = {"redirect_uris": [request.asked["redirect_uri"]]}
        return await foreign.usual(request)

    foreign.overrides["/authorize"] = any_port
    login = await log_in(foreign, file, client, Screen())
    assert login.client_id == "ostiary-cli"
    assert foreign.count["registered"] == 0
    assert foreign.requests("/authorize")[0].asked["scope"] == "mcp"


async def test_a_foreign_server_that_knows_offline_access_is_asked_for_it(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    foreign.metadata["scopes_supported"] = ["mcp", "admin", "offline_access"]
    await log_in(foreign, file, client, Screen())
    assert foreign.requests("/authorize")[0].asked["scope"] == "mcp offline_access"


async def test_scopes_that_are_named_are_asked_for_as_they_are(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    await log_in(foreign, file, client, Screen(), scope="  read   write ")
    assert foreign.requests("/authorize")[0].asked["scope"] == "read write"


def at(fake: FakeServer, path: str, document: Callable[[], Any]) -> None:
    async def answer(request: Seen) -> Response:
        return as_json(document())

    fake.overrides[path] = answer


async def missing(request: Seen) -> Response:
    return as_json({"error": "not_found"}, 404)


Handler = Callable[[Seen], Awaitable[Response]]


@pytest.mark.parametrize(
    "place",
    [
        "/.well-known/oauth-authorization-server/tenants/a",
        "/.well-known/openid-configuration/tenants/a",
        "/tenants/a/.well-known/openid-configuration",
    ],
)
async def test_an_issuer_with_a_path_is_found_at_any_of_its_places(
    foreign: FakeServer, file: TokenFile, client: HttpClient, place: str
) -> None:
    issuer = f"{foreign.origin}/tenants/a"
    resource = {**foreign.resource_metadata(), "authorization_servers": [issuer]}
    at(foreign, "/.well-known/oauth-protected-resource/mcp", lambda: resource)
    at(foreign, place, lambda: {**foreign.server_metadata(), "issuer": issuer})
    foreign.answered = {"iss": issuer}
    login = await log_in(foreign, file, client, Screen())
    assert login.issuer == issuer


async def test_a_server_from_before_resource_metadata_is_its_own_authorization_server(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    foreign.overrides["/.well-known/oauth-protected-resource/mcp"] = missing
    foreign.overrides["/mcp"] = lambda request: _bare_challenge(foreign, request)
    login = await log_in(foreign, file, client, Screen())
    assert (login.resource, login.issuer) == (foreign.url, foreign.origin)


async def _bare_challenge(fake: FakeServer, request: Seen) -> Response:
    answer = await fake.usual(request)
    if answer.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


async def test_neither_code_nor_verifier_is_in_any_repr(
    foreign: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    from server.client.browser_login import begin, read_answer
    from server.client.discovery import discover

    place = await discover(client, foreign.url)
    identity = ClientIdentity(client_id="x")
    attempt = begin(place, identity, redirect_uri="http://127.0.0.1:1/callback", scope="")
    query = f"code=the-code&state={attempt.state.reveal()}&iss={foreign.origin}"
    assert "the-code" not in repr(read_answer(query, attempt, place, identity))
    assert attempt.verifier.reveal() not in repr(attempt)


@pytest.mark.parametrize(
    ("offered", "method"), [([POST], POST), ([BASIC], BASIC), ([POST, BASIC], BASIC), ([], BASIC)]
)
async def test_a_client_named_by_hand_shows_its_secret_the_way_that_is_offered(
    foreign: FakeServer, file: TokenFile, client: HttpClient, offered: list[str], method: str
) -> None:
    foreign.metadata["token_endpoint_auth_methods_supported"] = offered

    async def any_port(request: Seen) -> Response:
        foreign.clients["by-hand"] = {
            "redirect_uris": [request.asked["redirect_uri"]],
            "token_endpoint_auth_method": method,
            "client_secret": "it is",
        }
        return await foreign.usual(request)

    foreign.overrides["/authorize"] = any_port
    identity = ClientIdentity(client_id="by-hand", secret=Secret("it is"), method=BASIC)
    assert (await log_in(foreign, file, client, Screen(), identity=identity)).auth_method == method
