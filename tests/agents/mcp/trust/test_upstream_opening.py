"""From the settings of an upstream to whom it is called as (server/agents/mcp/trust/upstream_opening.py)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from joserfc import jws

from auth.values.connected_accounts import AccountPlace
from server.agents.base.demo_agent import DemoConfig
from server.agents.mcp.mcp_settings import McpConfig
from server.agents.mcp.trust import upstream_opening
from server.agents.mcp.trust.person_connections import PersonalUpstream, PersonConnections
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.agents.mcp.trust.upstream_registry import UpstreamRegistry
from server.agents.mcp.upstream_credentials import AccountNeeded
from server.lib.oauth_client.client_identity import BASIC, NONE, POST, ClientIdentity
from server.lib.secret import Secret
from server.settings.setting_shapes import ServerConfig
from tests.agents.mcp.trust.trust_fakes import (
    TOKEN_URL,
    UPSTREAM_URL,
    FakeAuthorizationServer,
    House,
    call_of,
    open_house,
    tokens,
)
from tests.auth.identity_fakes import ORIGIN, subkey

AS = {"token_url": TOKEN_URL, "client_id": "us", "client_secret": "env:OUR_SECRET"}
LOGIN = "https://login.example"
MAIL = UpstreamKey("main", "mail")


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRET", "our secret")


def config(**settings: Any) -> McpConfig:
    return msgspec.convert({"url": UPSTREAM_URL, **settings}, McpConfig)


def claims_of(token: str) -> dict[str, Any]:
    return json.loads(jws.extract_compact(token.encode()).payload)


@pytest.mark.parametrize("audience", ["", "https://files.example"])
@pytest.mark.parametrize("identity", ["client-credentials", "exchange", "id-jag"])
async def test_a_token_is_fetched_in_the_way_and_for_the_audience_of_the_settings(
    identity: str, audience: str
) -> None:
    oauth = AS | {"scope": "files", "audience": audience, "authorization_server": LOGIN}
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("a"))
        make = upstream_opening._make(
            config(identity=identity, oauth=oauth), house.empty_desk(server=server), "main"
        )
        await make(call_of())
        assert server.urls == [TOKEN_URL]
        (form,) = server.forms
        assert form["scope"] == "files"
        meant = audience or UPSTREAM_URL
        if identity == "id-jag":
            said = claims_of(form["assertion"])
            assert (said["aud"], said["resource"], said["sub"]) == (LOGIN, meant, "usr_ann")
            return
        assert form["resource"] == meant
        shown = claims_of(form["subject_token"]) if identity == "exchange" else None
        assert shown is None or (shown["aud"], shown["sub"]) == (TOKEN_URL, "usr_ann")


@pytest.mark.parametrize("audience", ["", "https://files.example"])
async def test_a_token_of_ours_is_for_the_audience_of_the_settings(audience: str) -> None:
    async with open_house() as house:
        oauth = {"audience": audience, "seconds": 77, "scope": "files"}
        make = upstream_opening._make(config(identity="token", oauth=oauth), house.empty_desk(), "main")
        said = claims_of((await make(None)).access_token.reveal())
        assert (said["aud"], said["sub"], said["scope"], said["exp"] - said["iat"]) == (
            audience or UPSTREAM_URL,
            "server:main",
            "files",
            77,
        )


@pytest.mark.parametrize("identity", ["token", "exchange", "id-jag"])
async def test_nobody_could_check_a_token_of_a_server_whose_keys_are_not_published(identity: str) -> None:
    async with open_house() as house:
        with pytest.raises(ValueError, match=f'"{identity}" needs a server whose keys'):
            upstream_opening._make(
                config(identity=identity, oauth=AS | {"authorization_server": LOGIN}),
                house.empty_desk(lasts=False),
                "main",
            )


@pytest.mark.parametrize(
    ("oauth", "expected"),
    [
        ({"client_id": "us"}, ClientIdentity(client_id="us", method=NONE)),
        (AS, ClientIdentity(client_id="us", secret=Secret("our secret"), method=BASIC)),
        (
            AS | {"client_auth": "post"},
            ClientIdentity(client_id="us", secret=Secret("our secret"), method=POST),
        ),
    ],
)
def test_who_we_are_there_is_what_the_settings_say(oauth: dict[str, str], expected: ClientIdentity) -> None:
    assert upstream_opening._identity(config(oauth=oauth)) == expected


def personal(**settings: Any) -> McpConfig:
    return config(id="mail", identity="person", oauth={"authorization_server": LOGIN, **settings})


def connections_of(house: House, *agents: Any) -> PersonConnections:
    return upstream_opening.open_connections(
        [ServerConfig(name="main", agents=agents)], house.store, subkey, house.log, clock=house.clock
    )


@pytest.mark.parametrize(
    ("oauth", "resource", "identity"),
    [
        ({"scope": "mail"}, UPSTREAM_URL, None),
        ({"scope": "mail", "audience": "https://mail.example"}, "https://mail.example", None),
        (
            {"scope": "mail", "client_id": "us"},
            UPSTREAM_URL,
            ClientIdentity(client_id="us", method=NONE),
        ),
    ],
)
async def test_people_connect_their_accounts_at_the_upstreams_that_are_used_with_them(
    oauth: dict[str, str], resource: str, identity: ClientIdentity | None
) -> None:
    async with open_house() as house:
        found = connections_of(house, personal(**oauth), config(id="other"), DemoConfig())
        assert found._upstreams == {
            MAIL: PersonalUpstream(key=MAIL, resource=resource, issuer=LOGIN, scope="mail", identity=identity)
        }
        assert found.place("main", "mail") == AccountPlace(server="main", agent="mail", label="login.example")


def desk_of(house: House, connections: PersonConnections | None, *, lasts: bool = True) -> UpstreamRegistry:
    return upstream_opening.open_desk(
        house.store,
        subkey,
        house.log,
        house.issuer if lasts else None,
        clock=house.clock,
        connections=connections,
    )


async def test_who_has_connected_no_account_is_told_where_and_news_of_them_are_heard() -> None:
    async with open_house() as house:
        connections = connections_of(house, personal())
        desk = desk_of(house, connections)
        credential = upstream_opening._personal(personal(), desk, MAIL, desk.owner_login(MAIL, UPSTREAM_URL))
        with pytest.raises(AccountNeeded, match="Open " + ORIGIN + "/connect/main/mail "):
            await credential.headers(call_of())
        assert connections._listeners == {MAIL: credential.changed}


@pytest.mark.parametrize("missing", ["connections", "place", "issuer"])
async def test_accounts_of_people_need_a_server_that_they_log_in_to(missing: str) -> None:
    async with open_house() as house:
        connections = None if missing == "connections" else connections_of(house, personal())
        desk = desk_of(house, connections, lasts=missing != "issuer")
        key = UpstreamKey("main", "other") if missing == "place" else MAIL
        with pytest.raises(ValueError, match='"person" needs a server'):
            upstream_opening._personal(personal(), desk, key, desk.owner_login(key, UPSTREAM_URL))


def test_only_upstreams_have_a_place_by_which_they_are_known() -> None:
    servers = [ServerConfig(name="main", agents=(DemoConfig(), config(id="mail"), config()))]
    keys = [key for key, _ in upstream_opening.sources_of(servers)]
    assert keys == [MAIL, UpstreamKey("main")]


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"command": ["/usr/bin/files", "--all"], "url": ""}, "files"),
        ({"command": ["f" * 101], "url": ""}, "f" * 100),
        ({"tcp": "127.0.0.1:9000", "url": ""}, "127.0.0.1:9000"),
        ({"url": f"{UPSTREAM_URL}?key=secret"}, UPSTREAM_URL),
        ({"url": "https://files.example/".ljust(201, "x")}, "https://files.example/".ljust(200, "x")),
    ],
)
def test_an_upstream_is_known_by_its_id_or_by_where_it_is(settings: dict[str, Any], where: str) -> None:
    assert (config(**settings).place, config(**settings).what) == (where, where)
    named = config(**settings, id="mail")
    assert (named.place, named.what) == (where, "mail")
