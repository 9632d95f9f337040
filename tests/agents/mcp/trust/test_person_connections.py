"""Accounts of people at an upstream: connected in the browser of the person who began, used for their calls, ended on their page."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
import trio.testing

from auth.administration import guest_accounts
from auth.values.identity_model import PrincipalKind
from server.agents.base.backend import AgentRequest
from server.agents.mcp.trust import person_identity
from server.agents.mcp.trust.authorization_server import AuthorizationServers
from server.agents.mcp.trust.person_identity import PersonCredential
from server.agents.mcp.upstream_credentials import AccountNeeded
from server.lib.oauth_client.client_identity import BASIC, ClientIdentity
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError
from server.store.jobs import Change
from tests.agents.mcp.trust.connection_fakes import ISSUER, PATH, Connecting, FakeIssuer
from tests.agents.mcp.trust.trust_fakes import call_of
from tests.auth.browser_fakes import LOOPBACK, PASSPHRASE, Browser, House


async def test_a_person_connects_their_account_and_their_calls_and_no_others_go_out_with_it() -> None:
    there = Connecting()
    owner = there.house.owner_id
    with pytest.raises(AccountNeeded, match=f"Open {LOOPBACK}{PATH} in a browser"):
        await there.credential.headers(call_of(owner))
    browser = await there.browser()
    url = await there.away(browser)
    asked = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
    assert (asked["client_id"], asked["scope"], asked["resource"]) == (
        "client-1",
        "mail",
        "https://mail.example/mcp",
    )
    assert (await there.back(browser, there.issuer.agree(url))).status == 200
    assert "Connected" in browser.words
    assert await there.authorization(owner) == "Bearer access-1"
    with pytest.raises(AccountNeeded):
        await there.credential.headers(call_of("usr_bob"))
    assert there.house.audited("upstream.logged_in") == ["ok"]
    (row,) = there.house.rows("upstream_tokens")
    assert "access-1" not in str(dict(row))
    assert (row["person"], row["user_id"]) == (owner, owner)


async def test_who_is_not_signed_in_does_so_first_and_sees_what_connecting_means() -> None:
    there = Connecting()
    browser = Browser(there.house)
    await browser.get(PATH)
    assert browser.path.startswith("/signin?next=")
    await browser.submit("/signin", name="alice", passphrase=PASSPHRASE)
    assert browser.path == PATH
    assert "as alice , and nobody else" in browser.words
    assert there.issuer.registered == []


@pytest.mark.parametrize("path", ["/connect/agent/nothing", "/connect/other/mail"])
async def test_where_there_is_nothing_to_connect_that_is_said(path: str) -> None:
    there = Connecting()
    assert (await (await there.browser()).get(path)).status == 404


async def test_a_house_without_such_upstreams_has_no_such_page() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    assert (await browser.get(PATH)).status == 404


async def test_nobody_is_sent_away_by_a_form_that_is_not_ours() -> None:
    there = Connecting()
    browser = await there.browser()
    await browser.get(PATH)
    fields = browser.fields(PATH)
    assert (await browser.post(PATH, *fields, site="cross-site")).status == 403
    assert (await browser.post(PATH)).status == 403
    other = await there.browser("bob")
    await other.get(PATH)
    assert (await other.post(PATH, *fields)).status == 403
    assert there.house.rows("upstream_trips") == []


async def test_nobody_finishes_what_another_began() -> None:
    there = Connecting()
    mallory, victim = await there.browser("bob"), await there.browser("alice")
    answer = there.issuer.agree(await there.away(mallory))
    # The victim agreed over there to what Mallory began, and comes back with their own session.
    assert (await there.back(victim, answer)).status == 400
    # And Mallory in another browser of theirs is another browser.
    assert (await there.back(await there.browser("bob"), answer)).status == 400
    assert there.house.rows("upstream_tokens") == []
    assert there.issuer.redeemed == []
    # In the one that left it is good, once.
    assert (await there.back(mallory, answer)).status == 200
    assert (await there.back(mallory, answer)).status == 400
    (row,) = there.house.rows("upstream_tokens")
    assert row["person"] == "usr_bob"


async def test_a_state_of_one_browser_is_no_good_for_another_person_who_signs_in_there() -> None:
    there = Connecting()
    browser = await there.browser("bob")
    answer = there.issuer.agree(await there.away(browser))
    await browser.get("/account/you")
    await browser.submit("/signout")
    await browser.sign_in("alice")
    assert (await there.back(browser, answer)).status == 400
    assert there.house.rows("upstream_tokens") == []


@pytest.mark.parametrize("iss", ["https://evil.example", f"{ISSUER}/", None])
async def test_an_answer_in_another_name_is_not_redeemed(iss: str | None) -> None:
    there = Connecting()
    browser = await there.browser()
    answer = there.issuer.agree(await there.away(browser), iss=iss)
    assert (await there.back(browser, answer)).status == 502
    assert there.issuer.redeemed == []
    assert there.house.rows("upstream_tokens") == []


async def test_a_trip_that_took_too_long_is_over() -> None:
    there = Connecting()
    browser = await there.browser()
    answer = there.issuer.agree(await there.away(browser))
    there.house.time += 600_000
    assert (await there.back(browser, answer)).status == 400


async def test_a_no_connects_nothing_and_uses_the_trip_up() -> None:
    there = Connecting()
    browser = await there.browser()
    url = await there.away(browser)
    denied = there.issuer.agree(url, code=None, error="access_denied")
    assert (await there.back(browser, denied)).status == 403
    assert (await there.back(browser, there.issuer.agree(url))).status == 400


async def test_a_code_that_is_not_taken_connects_nothing() -> None:
    there = Connecting()
    browser = await there.browser()
    answer = there.issuer.agree(await there.away(browser), code="another")
    assert (await there.back(browser, answer)).status == 502
    assert there.house.rows("upstream_tokens") == []
    assert "invalid_grant" in browser.words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "https://evil.example"}, "another issuer"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"token_endpoint": "http://login.example/token"}, "no token_endpoint with https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "no authorization_endpoint with https"),
        ({"token_endpoint": "https://127.0.0.1/token"}, "no token_endpoint with https"),
        ({"token_endpoint": "http://127.0.0.1:22/"}, "no token_endpoint with https"),
        ({"registration_endpoint": "https://169.254.169.254/"}, "no registration_endpoint with https"),
        ({"registration_endpoint": "https://10.0.0.1/register"}, "no registration_endpoint with https"),
        ({"authorization_endpoint": "https://localhost/"}, "no authorization_endpoint with https"),
        ({"registration_endpoint": None}, "lets no program register itself"),
    ],
)
async def test_an_authorization_server_that_cannot_be_trusted_is_not_gone_to(
    change: dict[str, Any], words: str
) -> None:
    there = Connecting()
    there.issuer.metadata = {
        name: value for name, value in (there.issuer.metadata | change).items() if value is not None
    }
    browser = await there.browser()
    await browser.get(PATH)
    assert (await browser.submit(PATH)).status == 502
    assert words in browser.words
    assert there.house.rows("upstream_trips") == []


async def test_we_register_once_and_the_secret_is_sealed_and_shown_to_the_token_endpoint_alone() -> None:
    there = Connecting()
    await there.connect(await there.browser("alice"))
    await there.connect(await there.browser("bob"))
    assert [each["redirect_uris"] for each in there.issuer.registered] == [[f"{LOOPBACK}{PATH}/callback"]]
    (row,) = there.house.rows("upstream_clients")
    assert "their secret" not in row["sealed"]
    shown = there.issuer.redeemed[0]["authorization"].removeprefix("Basic ")
    assert base64.b64decode(shown) == b"client-1:their%20secret"


@pytest.mark.parametrize(
    ("origin", "later", "registered"),
    [(LOOPBACK, 1, 1), (LOOPBACK, 2, 2), (LOOPBACK, 3, 2), ("https://other.example", 0, 2)],
)
async def test_we_register_anew_for_another_address_and_when_the_secret_has_run_out(
    origin: str, later: int, registered: int
) -> None:
    there = Connecting()
    place = there.connections.place("agent", "mail")
    assert place is not None
    there.issuer.secret_ends_at = there.house.time // 1_000 + 2
    await there.connections.leave(place, user_id="usr_bob", cookie="c", origin=LOOPBACK)
    there.house.time += later * 1_000
    url = await there.connections.leave(place, user_id="usr_bob", cookie="c", origin=origin)
    assert parse_qs(urlsplit(url).query)["client_id"] == [f"client-{registered}"]
    assert len(there.issuer.registered) == registered


async def test_whoever_leaves_again_comes_back_from_the_later_trip_alone() -> None:
    there = Connecting()
    browser = await there.browser()
    first, second = [there.issuer.agree(await there.away(browser)) for _ in range(2)]
    assert (await there.back(browser, first)).status == 400
    assert (await there.back(browser, second)).status == 200


@pytest.mark.parametrize("scope", ["", "mail.read mail.send"])
async def test_we_register_with_the_scope_that_we_shall_ask_for_if_there_is_one(scope: str) -> None:
    issuer = FakeIssuer()
    servers = AuthorizationServers(issuer, lambda: 0)
    await servers.register(await servers.find(ISSUER), redirect_uri=f"{LOOPBACK}{PATH}/callback", scope=scope)
    (registered,) = issuer.registered
    assert registered.get("scope", "") == scope
    assert ("scope" in registered) == bool(scope)


async def test_a_client_of_the_settings_is_used_and_nothing_is_registered() -> None:
    there = Connecting(ClientIdentity(client_id="ours", secret=Secret("known"), method=BASIC))
    await there.connect(await there.browser())
    assert there.issuer.registered == []
    shown = there.issuer.redeemed[0]["authorization"].removeprefix("Basic ")
    assert base64.b64decode(shown) == b"ours:known"


async def test_an_account_is_refreshed_when_its_token_runs_out_and_asked_for_again_when_it_is_over() -> None:
    there = Connecting()
    owner = there.house.owner_id
    await there.connect(await there.browser())
    assert await there.authorization(owner) == "Bearer access-1"
    there.house.time += 600_000
    assert await there.authorization(owner) == "Bearer access-2"
    there.issuer.given = 77  # it knows the refresh token no more
    there.house.time += 600_000
    with pytest.raises(AccountNeeded):
        await there.credential.headers(call_of(owner))
    assert there.house.rows("upstream_tokens") == []
    assert there.credential.trouble() is None  # nothing that the server's owner could mend


async def test_a_token_that_the_upstream_refuses_is_refreshed_once_and_then_the_account_asked_for() -> None:
    there = Connecting()
    call = call_of(there.house.owner_id)
    await there.connect(await there.browser())
    await there.credential.headers(call)
    assert await there.credential.refused(call, "Bearer") is True
    there.house.time += 30_000
    with pytest.raises(AccountNeeded):
        await there.credential.refused(call, "Bearer")
    with pytest.raises(AccountNeeded):
        await there.credential.headers(call)


async def test_a_token_that_the_upstream_refuses_while_no_other_can_be_had_costs_nobody_their_account() -> (
    None
):
    there = Connecting()
    call = call_of(there.house.owner_id)
    await there.connect(await there.browser())
    await there.credential.headers(call)
    there.issuer.down = True
    with pytest.raises(BackendError, match="right now"):
        await there.credential.refused(call, "Bearer")
    assert len(there.house.rows("upstream_tokens")) == 1
    there.issuer.down = False
    assert await there.credential.refused(call, "Bearer") is True
    assert await there.authorization(there.house.owner_id) == "Bearer access-2"


async def test_whoever_waits_for_an_account_goes_on_when_it_is_there() -> None:
    there = Connecting()
    browser = await there.browser()
    with pytest.raises(AccountNeeded) as raised:
        await there.credential.headers(call_of(there.house.owner_id))
    outcome: list[bool] = []

    async def wait() -> None:
        outcome.append(await raised.value.connected())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert outcome == []
        await there.connect(browser)
    assert outcome == [True]


async def test_whoever_waits_in_vain_is_told(autojump_clock: trio.testing.MockClock) -> None:
    there = Connecting()
    with pytest.raises(AccountNeeded) as raised:
        await there.credential.headers(call_of("usr_bob"))
    assert await raised.value.connected() is False


@pytest.mark.parametrize("kind", [PrincipalKind.ANONYMOUS, PrincipalKind.CLIENT, PrincipalKind.PAYER])
async def test_nobody_without_an_account_here_has_one_there(kind: PrincipalKind) -> None:
    there = Connecting()
    with pytest.raises(BackendError, match="log in with yours"):
        await there.credential.headers(call_of("x", None, kind))


async def test_the_account_page_lists_what_is_connected_and_ends_it() -> None:
    there = Connecting()
    browser = await there.browser()
    await there.connect(browser)
    await there.authorization(there.house.owner_id)
    await browser.get("/account/you")
    assert "Accounts elsewhere" in browser.words
    assert "login.example" in browser.words
    bob = await there.browser("bob")
    await bob.get("/account/you")
    assert "Accounts elsewhere" not in bob.words
    await browser.submit("/account/connections/end")
    assert "Your connection to login.example was ended" in browser.words
    assert there.house.rows("upstream_tokens") == []
    with pytest.raises(AccountNeeded):
        await there.credential.headers(call_of(there.house.owner_id))
    assert there.house.audited("upstream.logged_out") == ["ok"]


async def test_whoever_is_removed_leaves_no_account_behind() -> None:
    there = Connecting()
    await there.connect(await there.browser("bob"))
    await there.authorization("usr_bob")
    there.house.store.now(partial(guest_accounts.remove, name="bob", by="local:0", now=there.house.time))
    assert there.house.rows("upstream_tokens") == []


async def test_an_account_in_wrong_hands_loses_what_was_connected_to_it_at_once() -> None:
    there = Connecting()
    await there.connect(await there.browser("bob"))
    assert await there.authorization("usr_bob") == "Bearer access-1"
    there.house.store.now(
        partial(guest_accounts.switch, verb="lock", name="bob", by="local:0", now=there.house.time)
    )
    assert there.house.rows("upstream_tokens") == []
    there.connections.apply_changes([Change(seq=1, kind="user", entity_id="usr_bob")])
    with pytest.raises(AccountNeeded):
        await there.credential.headers(call_of("usr_bob"))


async def test_an_account_that_was_connected_or_taken_away_at_another_node_is_so_at_this_one() -> None:
    there = Connecting()
    owner = there.house.owner_id
    connections, credential = there.node()
    heard = 0

    def hear() -> None:
        nonlocal heard
        rows = [row for row in there.house.rows("changes") if row["seq"] > heard]
        connections.apply_changes([Change(row["seq"], row["kind"], row["entity_id"]) for row in rows])
        heard = max((row["seq"] for row in rows), default=heard)

    with pytest.raises(AccountNeeded):
        await credential.headers(call_of(owner))
    await there.connect(await there.browser())
    hear()
    assert await credential.headers(call_of(owner)) == {"Authorization": "Bearer access-1"}
    assert await there.connections.end("agent", "mail", user_id=owner)
    hear()
    with pytest.raises(AccountNeeded):
        await credential.headers(call_of(owner))
    with pytest.raises(AccountNeeded):
        await credential.headers(call_of("usr_bob"))


class Told:
    """The login of a person, as `PersonCredential` looks after it."""

    over = False

    def __init__(self, person: str, opened: list[str]) -> None:
        opened.append(person)
        self.idle = True

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return {"Authorization": "Bearer theirs"}


async def test_of_logins_that_nobody_uses_the_one_goes_first_that_was_used_the_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(person_identity, "MOST", 2)
    opened: list[str] = []
    logins: dict[str, Told] = {}

    def login_of(person: str) -> Any:
        logins[person] = Told(person, opened)
        return logins[person]

    credential = PersonCredential("login.example", PATH, ours=login_of("ours"), login_of=login_of)
    opened.clear()

    async def call(*people: str) -> None:
        for person in people:
            await credential.headers(call_of(person))

    await call("ann", "bob", "ann", "cat", "ann", "cat")
    assert opened == ["ann", "bob", "cat"]
    # Whoever is at it stays.
    logins["ann"].idle = logins["cat"].idle = False
    await call("bob", "ann", "cat", "bob")
    assert opened == ["ann", "bob", "cat", "bob"]
    logins["ann"].idle = True
    await call("dan", "bob")
    assert opened == ["ann", "bob", "cat", "bob", "dan", "bob"]
