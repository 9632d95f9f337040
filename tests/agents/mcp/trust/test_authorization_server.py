"""What an authorization server says of itself, and what it makes of us (server/agents/mcp/trust/authorization_server.py), field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from auth.values.connected_accounts import CannotConnect
from server.agents.mcp.trust.authorization_server import AuthorizationServers
from server.lib.oauth_client.client_identity import BASIC, NONE, POST
from server.lib.oauth_client.dynamic_registration import Registered
from server.lib.oauth_client.issuer_metadata import ServerMetadata
from server.lib.oauth_client.oauth_answers import OAuthAnswer, OAuthFailure
from server.lib.secret import Secret

ISSUER = "https://login.example"
HOUR = 3_600_000
BACK = "https://shop.example/connect/main/mail/callback"


class Answers:
    """An authorization server that answers at each address with a status and a body; elsewhere there is nothing."""

    def __init__(self, **places: tuple[int, object]) -> None:
        self.places: dict[str, tuple[int, Any]] = {
            f"/{name.replace('__', '/')}": answer for name, answer in places.items()
        }
        self.asked: list[str] = []
        self.sent: list[tuple[Mapping[str, str], bytes]] = []
        self.down = False

    async def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> OAuthAnswer:
        if self.down:
            raise OAuthFailure("does not answer in time")
        self.asked.append(f"{method} {url}")
        self.sent.append((headers, body))
        status, said = self.places.get(url.removeprefix(ISSUER), (404, {}))
        return OAuthAnswer(status=status, body=said if isinstance(said, bytes) else json.dumps(said).encode())


def metadata(**changes: object) -> dict[str, Any]:
    said = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "registration_endpoint": f"{ISSUER}/register",
        "code_challenge_methods_supported": ["S256"],
    }
    return {name: value for name, value in {**said, **changes}.items() if value is not None}


def server(**changes: Any) -> ServerMetadata:
    fields: dict[str, Any] = {
        "issuer": ISSUER,
        "found_at": f"{ISSUER}/.well-known/oauth-authorization-server",
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "registration_endpoint": f"{ISSUER}/register",
        "challenge_methods": ("S256",),
    }
    return ServerMetadata(**{**fields, **changes})


def refused(words: str | None) -> AbstractContextManager[object]:
    return nullcontext() if words is None else pytest.raises(CannotConnect, match=words)


async def found(said: object, status: int = 200) -> ServerMetadata:
    there = Answers()
    there.places["/.well-known/oauth-authorization-server"] = (status, said)
    return await AuthorizationServers(there, lambda: 0).find(ISSUER)


async def registered(said: object, status: int = 201, *, at: ServerMetadata | None = None) -> Registered:
    servers = AuthorizationServers(Answers(register=(status, said)), lambda: 0)
    return await servers.register(at or server(), redirect_uri=BACK, scope="")


# ── its document ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        ("/", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            "/realms/one",
            [
                "/.well-known/oauth-authorization-server/realms/one",
                "/.well-known/openid-configuration/realms/one",
                "/realms/one/.well-known/openid-configuration",
            ],
        ),
    ],
)
@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
async def test_a_document_is_looked_for_at_its_places_until_one_has_it(
    path: str, places: list[str], status: int
) -> None:
    there = Answers()
    there.places = {place: (status, {}) for place in places[:-1]}
    there.places[places[-1]] = (200, metadata(issuer=ISSUER + path))
    assert (
        await AuthorizationServers(there, lambda: 0).find(ISSUER + path)
    ).token_endpoint == f"{ISSUER}/token"
    assert there.asked == [f"GET {ISSUER}{place}" for place in places]
    assert [headers for headers, _ in there.sent] == [{"Accept": "application/json"}] * len(places)
    there.places[places[-1]] = (status, {})
    with refused("publishes no document"):
        await AuthorizationServers(there, lambda: 0).find(ISSUER + path)


@pytest.mark.parametrize("status", [199, 201, 204, 301, 400, 402, 406, 409, 411, 500, 503])
async def test_any_other_answer_is_no_document_and_nothing_else_is_tried(status: int) -> None:
    with refused(f"status {status}"):
        await found(metadata(), status)


@pytest.mark.parametrize("said", [b"<html>", b"\xff", b"[]", b"[" * 100_000, b""])
async def test_what_is_no_object_is_no_document_and_registers_nobody(said: bytes) -> None:
    with refused("JSON object"):
        await found(said)
    with refused("JSON object"):
        await registered(said)


async def test_one_that_is_away_has_no_document_and_registers_nobody() -> None:
    there = Answers()
    there.down = True
    servers = AuthorizationServers(there, lambda: 0)
    with refused("in time"):
        await servers.find(ISSUER)
    with refused("in time"):
        await servers.register(server(), redirect_uri=BACK, scope="")


@pytest.mark.parametrize(("later", "asked"), [(0, 1), (HOUR - 1, 1), (HOUR, 2), (-1, 2)])
async def test_a_document_is_remembered_for_an_hour(later: int, asked: int) -> None:
    there, now = Answers(), 5 * HOUR
    there.places["/.well-known/oauth-authorization-server"] = (200, metadata())
    servers = AuthorizationServers(there, lambda: now)
    first = await servers.find(ISSUER)
    now += later
    assert await servers.find(ISSUER) == first
    assert len(there.asked) == asked


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": f"{ISSUER}/"}, "another issuer"),
        ({"code_challenge_methods_supported": None}, "PKCE"),
        ({"code_challenge_methods_supported": "S256"}, "PKCE"),
        ({"code_challenge_methods_supported": [*["plain"] * 99, "S256"]}, None),
        ({"code_challenge_methods_supported": [*["plain"] * 100, "S256"]}, "PKCE"),
        ({"token_endpoint": None}, "no token_endpoint"),
        ({"token_endpoint": 7}, "no token_endpoint"),
        ({"token_endpoint": f"{ISSUER}/tökén"}, "no token_endpoint"),
        ({"registration_endpoint": ""}, "no registration_endpoint"),
    ],
)
async def test_a_document_says_who_it_is_of_and_where_everything_is(
    change: dict[str, object], words: str | None
) -> None:
    with refused(words):
        await found(metadata(**change))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, server()),
        ({"registration_endpoint": None}, server(registration_endpoint=None)),
        ({"authorization_response_iss_parameter_supported": True}, server(names_itself=True)),
        ({"authorization_response_iss_parameter_supported": "true"}, server()),
        ({"token_endpoint_auth_methods_supported": [POST, 7, NONE]}, server(auth_methods=(POST, NONE))),
        ({"token_endpoint_auth_methods_supported": []}, server()),
    ],
)
async def test_what_a_document_does_not_say_is_as_the_rfc_has_it(
    change: dict[str, object], expected: ServerMetadata
) -> None:
    assert await found(metadata(**change)) == expected


# ── registering ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [
        ((NONE, POST, BASIC), BASIC),
        ((NONE, POST), POST),
        ((NONE,), NONE),
        (("private_key_jwt",), BASIC),
    ],
)
async def test_we_ask_to_be_a_program_with_a_secret_where_that_can_be_had(
    offered: tuple[str, ...], wanted: str
) -> None:
    there = Answers(register=(201, {"client_id": "us"}))
    servers = AuthorizationServers(there, lambda: 0)
    await servers.register(server(auth_methods=offered), redirect_uri=BACK, scope="")
    assert there.asked == [f"POST {ISSUER}/register"]
    ((headers, body),) = there.sent
    assert headers == {"Accept": "application/json", "Content-Type": "application/json"}
    said = json.loads(body)
    del said["software_version"]
    assert said == {
        "client_name": "Ostiary",
        "redirect_uris": [BACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
        "application_type": "web",
        "software_id": "ostiary",
    }


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (200, None),
        (201, None),
        *((other, f"status {other}") for other in (199, 202, 204, 400, 401, 403, 500)),
    ],
)
async def test_we_are_registered_where_it_says_that_it_has_made_us(status: int, words: str | None) -> None:
    with refused(words):
        assert (await registered({"client_id": "us"}, status)).identity.client_id == "us"


@pytest.mark.parametrize(
    ("said", "method", "secret"),
    [
        ({}, NONE, None),
        ({"client_secret": "s"}, BASIC, "s"),
        ({"client_secret": "s", "token_endpoint_auth_method": POST}, POST, "s"),
        ({"client_secret": "s", "token_endpoint_auth_method": NONE}, NONE, None),
        ({"client_secret": " ~", "token_endpoint_auth_method": ""}, BASIC, " ~"),
        ({"client_secret": "s" * 4_096}, BASIC, "s" * 4_096),
        ({"client_id": "u" * 4_096}, NONE, None),
    ],
)
async def test_what_it_made_of_us_counts(said: dict[str, object], method: str, secret: str | None) -> None:
    made = await registered({"client_id": "us", **said})
    assert (made.issuer, made.redirect_uri, made.expires_at) == (ISSUER, BACK, None)
    assert (made.auth_method, made.client_secret) == (method, None if secret is None else Secret(secret))


@pytest.mark.parametrize(
    "said",
    [
        {"client_id": None},
        {"client_id": ""},
        {"client_id": 7},
        {"client_id": "u" * 4_097},
        {"client_id": "u\n"},
        {"client_id": "ü"},
        {"client_id": "u\x7f"},
        {"token_endpoint_auth_method": BASIC},
        {"token_endpoint_auth_method": POST, "client_secret": "s" * 4_097},
        {"token_endpoint_auth_method": "private_key_jwt", "client_secret": "s"},
        {"token_endpoint_auth_method": 1, "client_secret": "s"},
    ],
)
async def test_what_cannot_be_shown_to_it_again_is_no_registration(said: dict[str, object]) -> None:
    with refused("cannot be used"):
        await registered({"client_id": "us", **said})


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (1, 1_000),
        (10**12 - 1, (10**12 - 1) * 1_000),
        (10**12, None),
        (0, None),
        (-1, None),
        (True, None),
        (1.5, 1_500),
        ("1", 1_000),
        ("-1", None),
        (None, None),
    ],
)
async def test_a_secret_runs_out_when_it_says_in_seconds(ends: object, expected: int | None) -> None:
    said = {"client_id": "us", "client_secret_expires_at": ends}
    assert (await registered({**said, "client_secret": "s"})).expires_at == expected
    assert (await registered(said)).expires_at is None


async def test_one_that_registers_nobody_is_not_asked() -> None:
    with refused("lets no program register itself"):
        await registered({"client_id": "us"}, at=server(registration_endpoint=None))
