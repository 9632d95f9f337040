"""People and their programs, with two servers on one database: every request goes to the other one than that before, so nothing that takes two
requests is begun and ended at the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from handmade import Handmade, landed
from nodes import Nodes, ServedNode
from person import NAME, PASSPHRASE, Person
from playwright.sync_api import Browser, expect
from programs import WAIT_SECONDS, Server, until
from taking_turns import TakingTurns
from test_clients_log_in import PEERS, PYTHON, House, needed, node
from test_consent_in_chromium import listening
from test_passkeys_served import browsing

from tests.auth.software_authenticator import SoftwareAuthenticator
from tests.auth.upstream_fakes import CLIENT, SECRET, FakeProvider, provided
from tests.e2e.chromium import Devices, fill_in, tab
from tests.free_ports import free_port
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.peers, pytest.mark.slow]


@dataclass(frozen=True, kw_only=True)
class TwoNodes:
    a: ServedNode
    b: ServedNode
    balancer: TakingTurns
    provider: FakeProvider
    owner: Person
    claim: str  # the link that was followed

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.balancer.port}"


def settings(folder: Path, provider: FakeProvider) -> str:
    (folder / "secret").write_text(SECRET + "\n", "utf-8")
    return f"""
        [[upstream]]
        name = "work"
        kind = "oidc"
        label = "Example Ltd"
        issuer = "{provider.origin}"
        client_id = "{CLIENT}"
        client_secret = "file:{folder / "secret"}"
        allow = [{{ subject = "sub-of-ann", user = "{NAME}" }}]
    """


@pytest.fixture(scope="module")
def both(shared_home: Path, postgres_server: PostgresServer) -> Iterator[TwoNodes]:
    """With an owner, who has claimed them with a link that was made at the one's machine."""
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        database = stack.enter_context(postgres_server.database())
        provider = stack.enter_context(provided(lambda: time.time_ns() // 1_000_000))
        balancer = stack.enter_context(closing(TakingTurns(ports)))
        nodes = Nodes(
            home=shared_home, database=database, settings=settings(shared_home, provider), port=balancer.port
        )
        a = stack.enter_context(nodes.serving("b", "--port", str(ports[0])))
        b = stack.enter_context(nodes.serving("c", "--port", str(ports[1])))
        for each, port in zip((a, b), ports, strict=True):
            each.server.url = each.client.origin = f"http://127.0.0.1:{port}"
        a.server.await_words(rf'"boot":"{b.boot}"')
        balancer.start()
        owner = Person()
        stack.callback(owner.close)
        link: str = a.program.at_machine("claim")["url"]
        page = owner.browser.get(link)
        page = owner.press(
            page, "Claim", {"name": NAME, "passphrase": PASSPHRASE, "passphrase_again": PASSPHRASE}
        )
        assert f"The server is yours, {NAME}" in page.text
        yield TwoNodes(a=a, b=b, balancer=balancer, provider=provider, owner=owner, claim=link)


@pytest.fixture(autouse=True)
def turns_were_taken(both: TwoNodes) -> Iterator[None]:
    before = list(both.balancer.turns)
    yield
    given = [now - then for now, then in zip(both.balancer.turns, before, strict=True)]
    assert min(given) >= 2, given
    assert abs(given[0] - given[1]) <= 1


def test_whoever_claimed_at_both_is_signed_in_at_both_and_the_link_is_used_up_at_both(both: TwoNodes) -> None:
    assert both.claim.startswith(f"{both.url}/claim/")
    for _ in range(4):
        assert NAME in both.owner.browser.get(f"{both.url}/account/you").text
        assert httpx2.get(both.claim, trust_env=False, timeout=WAIT_SECONDS).status_code == 410
    for each in (both.a, both.b):
        (user,) = each.program.at_machine("users", "list")
        assert (user["name"], user["role"]) == (NAME, "owner")


def test_a_request_that_was_pushed_to_one_is_agreed_to_at_both_and_its_code_is_good_once_at_either(
    both: TwoNodes,
) -> None:
    client = Handmade(both.url)
    client_id = client.register(client_name="made by hand")["client_id"]
    asked = dict(httpx2.URL(client.authorize_url(client_id)).params)
    pushed = both.a.client.post("/par", asked)
    assert pushed.status_code == 201, pushed.text
    back = landed(
        both.owner,
        f"{both.url}/authorize?{httpx2.QueryParams(client_id=client_id, request_uri=pushed.json()['request_uri'])}",
    )
    assert back["iss"] == both.url

    def redeem(at: ServedNode) -> httpx2.Response:
        return at.client.redeem(client_id, back["code"], code_verifier=client.verifier)

    redeemed = redeem(both.b)
    assert redeemed.status_code == 200, redeemed.text
    token = redeemed.json()["access_token"]
    assert both.a.client.works(token) and client.works(token)
    again = redeem(both.a)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    # Whoever shows it a second time may have stolen it, at whichever node that is noticed.
    for each in (both.a, both.b):
        until("it to be refused", lambda: not each.client.works(token) or None)  # noqa: B023
    client.close()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("oauth4webapi.mjs", "par"), id="pushed"),
        pytest.param(("oauth4webapi.mjs", "code"), id="by-browser"),
        pytest.param(("oauth4webapi.mjs", "device"), id="by-code"),
        pytest.param(("oauth4webapi_dpop.mjs", "par"), id="bound-to-a-key"),
    ],
)
def test_the_strict_library_logs_in_refreshes_and_ends_it(both: TwoNodes, command: tuple[str, str]) -> None:
    script, way = command
    before = logins(both)
    found = house(both).let_in(*node(script), way, both.url, f"{both.url}/mcp")
    # What it asks at once after it ended its login may still be answered where that is heard of a moment later.
    del found["afterwards"]
    if script == "oauth4webapi.mjs":
        assert found == {"text": ["oauth4webapi", "renewed"], "scope": "mcp:tools"}
    else:
        assert found["said"] == ["with a key", "renewed"]
        assert found["without"] == ["invalid_grant", "invalid_grant"]
        assert found["stolen"] == {each: [401, 401, 401] for each in ("POST", "GET", "DELETE")}
        assert found["ended"] == 204
    assert logins(both) == before


def logins(both: TwoNodes) -> set[str]:
    return {each["id"] for each in both.b.program.at_machine("sessions")}


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_the_typescript_sdk_logs_in_registers_and_refreshes(both: TwoNodes, generation: str) -> None:
    found = house(both).let_in(*node("ts_login.mjs"), generation, f"{both.url}/mcp")
    assert found["text"] == ["in by myself", "still in"]
    assert (found["rotated"], found["issuer"]) == (True, both.url)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_python_sdk_logs_in_and_registers(both: TwoNodes, mode: str) -> None:
    script = PEERS / "python_sdk_login.py"
    found = house(both).let_in(needed(PYTHON, "scripts/peers"), script, f"{both.url}/mcp", mode)
    assert found["text"] == ["in by myself"]


def house(both: TwoNodes) -> House:
    server = both.a.server
    public = Server(process=server.process, log=server.log, url=both.url)
    return House(program=both.a.program, server=public, owner=both.owner)


def test_somebody_who_was_invited_comes_in_with_a_passkey_and_signs_in_with_it_once_for_each_question(
    both: TwoNodes,
) -> None:
    # Browsers have passkeys only at a name.
    url = both.url.replace("127.0.0.1", "localhost")
    link: str = both.b.program.at_machine("invite", "bob")["url"]
    path = link.removeprefix(both.url)
    key = SoftwareAuthenticator(origin=url, rp_id="localhost")
    with browsing(url) as bob:
        bob.get(path)
        ticket, options = bob.question()
        page = bob.send(path, ticket=ticket, credential=key.make(options))
        assert page.status_code == 200 and "You are signed in" in page.text
        for _ in range(2):
            assert "bob" in bob.get("/account/you").text
            assert bob.client.get(path).status_code == 410

    with browsing(url) as bob:
        bob.get("/signin?next=/account/you")
        ticket, options = bob.question()
        answer = key.answer(options)
        page = bob.send("/signin/passkey", ticket=ticket, credential=answer)
        assert page.url.path == "/account/you"
        for _ in range(2):  # the same answer, at either
            with browsing(url) as thief:
                thief.get("/signin")
                page = thief.send("/signin/passkey", ticket=ticket, credential=answer)
                assert page.status_code == 400

    names = {each["name"]: each["state"] for each in both.a.program.at_machine("users", "list")}
    assert names["bob"] == "enabled"


def test_a_sign_in_at_a_provider_that_was_begun_at_one_is_ended_at_the_other_and_only_once(
    both: TwoNodes,
) -> None:
    with httpx2.Client(base_url=both.url, trust_env=False, timeout=WAIT_SECONDS) as browser:
        page = browser.get("/signin?next=/account").text
        form = page.partition('action="/signin/with/work"')[2].partition("</form>")[0]
        fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form))
        left = browser.post("/signin/with/work", data=fields, headers={"origin": both.url})
        assert left.status_code == 303, left.text
        there = httpx2.get(left.headers["location"], trust_env=False, timeout=WAIT_SECONDS)
        back = browser.get(there.headers["location"])
        assert (back.status_code, back.headers["location"]) == (303, "/account")
        for _ in range(2):
            assert NAME in browser.get("/account/you").text
            again = browser.get(there.headers["location"])
            assert again.status_code == 400 and "This sign-in has ended" in again.text


@pytest.mark.browser
def test_in_chromium_a_program_is_let_in_with_a_passkey_that_was_made_a_moment_ago(
    both: TwoNodes, chromium: Browser
) -> None:
    url = both.url.replace("127.0.0.1", "localhost")
    client = Handmade(both.url)
    with listening() as program, tab(chromium, javascript=True) as page:
        devices = Devices(page.context.new_cdp_session(page))
        devices.plug_in()
        page.goto(f"{url}/signin?next=/account/you")
        fill_in(page, NAME, PASSPHRASE)
        page.get_by_role("button", name="Add a passkey").click()
        page.get_by_label("What to call it").fill("Blue key")
        page.get_by_role("button", name="Make a passkey").click()
        expect(page.get_by_text("The passkey was added")).to_be_visible()
        page.get_by_role("button", name="Sign out", exact=True).first.click()
        expect(page.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()

        client_id = client.register(client_name="A program", redirect_uris=[program.uri])["client_id"]
        asked = client.authorize_url(client_id, redirect_uri=program.uri)
        page.goto(asked.replace(both.url, url))
        page.get_by_role("button", name="Sign in with a passkey").click()
        page.get_by_role("button", name="Allow").click()
        expect(page.get_by_role("heading", name="Signed in, go back to your terminal")).to_be_visible()
        (query,) = program.queries
        redeemed = client.redeem(client_id, query["code"][0], redirect_uri=program.uri)
        assert redeemed.status_code == 200, redeemed.text
        assert client.works(redeemed.json()["access_token"])
    client.close()
