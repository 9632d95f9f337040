"""As whom an upstream is called: tokens of ours, and tokens that are fetched for us or for the caller (server/agents/mcp/trust/call_credentials.py).

What we sign is read here as an upstream would, with a library that is not ours.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import trio
import trio.testing
from joserfc import jwt
from joserfc.jwk import KeySet

from auth.grants import identity_assertions
from auth.providers.provider_sign_in import Provider
from auth.tokens import access_token_verifier
from auth.values.identity_model import PrincipalKind
from server.agents.base.backend import AgentRequest, Trouble
from server.agents.mcp.trust.call_credentials import (
    MakeToken,
    TokenCredential,
    Whose,
    WithHeaders,
    asserted,
    client_credentials,
    exchanged,
    for_caller,
    for_everybody,
    own_token,
)
from server.agents.mcp.trust.own_tokens import TokenIssuer
from server.agents.mcp.upstream_credentials import StaticCredential
from server.lib.oauth_client.client_identity import BASIC, ClientIdentity
from server.lib.oauth_client.oauth_answers import OAuthAnswer, OAuthFailure
from server.lib.oauth_client.token_requests import TOKEN_EXCHANGE, fetch_tokens
from server.lib.secret import Secret
from server.lib.secret import Secret as Stated
from server.mcp.call_failures import BackendError
from tests.agents.mcp.trust.trust_fakes import (
    FILES,
    TOKEN_URL,
    UPSTREAM_URL,
    FakeAuthorizationServer,
    House,
    call_of,
    open_house,
    tokens,
)
from tests.auth.identity_fakes import ORIGIN

QUIET = 5_000

US = ClientIdentity(client_id="us", secret=Secret("our secret"), method=BASIC)
ISSUER = "https://login.example"


def credential(house: House, make: MakeToken, whose: Whose = for_caller("main")) -> TokenCredential:  # noqa: B008
    return TokenCredential(FILES, make, whose, clock=house.clock, log=house.log)


def own(house: House, *, seconds: int = 120, scope: str = "") -> TokenCredential:
    make = own_token(house.issuer(), UPSTREAM_URL, server="main", scope=scope, seconds=seconds)
    return credential(house, make)


async def token_of(credential: TokenCredential, call: AgentRequest | None) -> str:
    headers = await credential.headers(call)
    assert headers.keys() == {"Authorization"}
    return headers["Authorization"].removeprefix("Bearer ")


def read(house: House, token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims, once the signature is right."""
    keys = KeySet.import_key_set(json.loads(house.identity.parts.keys.ring.jwks(house.clock())))
    said = jwt.decode(token, keys, algorithms=["ES256"])
    return said.header, said.claims


async def test_a_token_of_ours_names_the_person_the_program_and_one_audience_and_ends_soon() -> None:
    async with open_house() as house:
        header, claims = read(house, await token_of(own(house, scope="files:read"), call_of()))
        now = house.clock() // 1_000
        assert header["typ"] == "at+jwt"
        assert {name: value for name, value in claims.items() if name != "jti"} == {
            "iss": ORIGIN,
            "aud": UPSTREAM_URL,
            "sub": "usr_ann",
            "client_id": "ostiary-cli",
            "act": {"sub": "ostiary-cli"},
            "scope": "files:read",
            "iat": now,
            "exp": now + 120,
        }


@pytest.mark.parametrize(
    ("call", "subject", "program", "acts"),
    [
        (None, "server:main", "ostiary", None),
        (call_of("cli_ci", "cli_ci", PrincipalKind.CLIENT), "cli_ci", "cli_ci", None),
        (call_of("key_1", None, PrincipalKind.API_KEY, user="usr_bob"), "usr_bob", "ostiary", None),
        (call_of("token:main:ci", None, PrincipalKind.API_KEY), "token:main:ci", "ostiary", None),
        (call_of("anonymous", None, PrincipalKind.ANONYMOUS), "anonymous", "ostiary", None),
        (AgentRequest(subject="x", call_id="call_1"), "server:main", "ostiary", None),
    ],
    ids=[
        "the server itself",
        "a machine",
        "a key of a person's",
        "a token of the settings",
        "nobody",
        "nobody said",
    ],
)
async def test_whoever_else_calls_is_named_as_what_they_are(
    call: AgentRequest | None, subject: str, program: str, acts: object
) -> None:
    async with open_house() as house:
        _, claims = read(house, await token_of(own(house), call))
        assert (claims["sub"], claims["client_id"], claims.get("act")) == (subject, program, acts)


async def test_a_token_is_kept_for_its_caller_and_program_and_for_nobody_else() -> None:
    async with open_house() as house:
        mine = own(house)
        first = await token_of(mine, call_of())
        assert await token_of(mine, call_of()) == first
        assert await token_of(mine, call_of("usr_bob")) != first
        assert await token_of(mine, call_of(client_id="another")) != first
        house.clock.now += 108_000
        later = await token_of(mine, call_of())
        assert later != first
        house.clock.now -= 200_000  # a clock that was set back: nothing is believed of what was made before
        assert await token_of(mine, call_of()) != later


async def test_a_token_that_is_refused_is_made_anew() -> None:
    async with open_house() as house:
        mine = own(house)
        first = await token_of(mine, call_of())
        assert await mine.refused(call_of(), "Bearer") is True
        assert await token_of(mine, call_of()) != first


@pytest.mark.parametrize(
    "ours", [f"{ORIGIN}/mcp", f"{ORIGIN}/other/mcp/", ORIGIN, "HTTP://127.0.0.1:8420/mcp?x=1"]
)
async def test_no_token_is_made_for_a_server_of_our_own(ours: str) -> None:
    async with open_house() as house:
        with pytest.raises(ValueError, match="let the upstream in here"):
            own_token(house.issuer(), ours, server="main", scope="", seconds=60)


@pytest.mark.parametrize(
    ("ours", "audience", "good"),
    [
        ("HTTPS://Shop.example:443/mcp/", "https://shop.example/mcp", False),
        ("https://shop.example/mcp", "https://shop.example/mcp/other", True),
        ("urn:shop", "urn:shop", False),
        ("urn:shop", "urn:other", True),
    ],
)
async def test_an_audience_is_ours_however_it_is_written(ours: str, audience: str, good: bool) -> None:
    issuer = TokenIssuer(ORIGIN, lambda: None, ours=[ours], clock=lambda: 0, entropy=bytes)  # type: ignore[arg-type,return-value]
    with nullcontext() if good else pytest.raises(ValueError, match="this server's own"):
        issuer.check_audience(audience)


async def test_a_token_of_ours_says_when_it_ends_to_the_second() -> None:
    async with open_house() as house:
        house.clock.now += 999
        _, claims = read(house, house.issuer().mint(UPSTREAM_URL, seconds=60, claims={}).reveal())
        assert (claims["iat"], claims["exp"]) == (house.clock() // 1_000, house.clock() // 1_000 + 60)


async def test_what_an_upstream_is_sent_lets_it_in_nowhere_here() -> None:
    async with open_house() as house:
        token, keys = await token_of(own(house), call_of()), house.identity.parts.keys
        with pytest.raises(access_token_verifier.BadToken):
            access_token_verifier.read(token, ORIGIN, keys, house.clock())


async def test_client_credentials_are_asked_for_once_for_everybody_and_again_when_they_run_out() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("one"), tokens("two"))
        make = client_credentials(
            server,
            TOKEN_URL,
            US,
            audience=UPSTREAM_URL,
            scope="a b",
        )
        mine = credential(house, make, for_everybody)
        server.gate = trio.Event()
        seen: list[str] = []

        async def ask(who: str) -> None:
            seen.append(await token_of(mine, call_of(who)))

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(ask, f"usr_{number}")
            await trio.testing.wait_all_tasks_blocked()
            server.gate.set()
        assert seen == ["one"] * 10
        assert server.forms == [
            {"grant_type": "client_credentials", "resource": UPSTREAM_URL, "scope": "a b"}
        ]
        assert (
            base64.b64decode(server.headers[0]["Authorization"].removeprefix("Basic ")) == b"us:our%20secret"
        )
        assert server.urls == [TOKEN_URL]
        house.clock.now += 541_000
        assert await token_of(mine, None) == "two"


async def test_an_authorization_server_that_gives_no_token_is_left_alone_for_a_moment_and_its_words_go_nowhere() -> (
    None
):
    async with open_house() as house:
        server = FakeAuthorizationServer(
            {"error": "invalid_client", "error_description": "our secret is wrong"}, tokens("at-last")
        )
        make = client_credentials(server, TOKEN_URL, US, audience=UPSTREAM_URL, scope="")
        mine = credential(house, make, for_everybody)
        for _ in range(3):
            with pytest.raises(BackendError, match="gave us no token") as raised:
                await mine.headers(call_of())
            assert "example" not in str(raised.value)
        assert len(server.forms) == 1
        trouble = mine.trouble()
        assert trouble is not None
        assert trouble.words == "login.example gave no token (invalid_client)"
        assert house.log.names.count("upstream.no_token") == 1
        house.clock.now += QUIET
        assert await token_of(mine, call_of()) == "at-last"
        assert mine.trouble() is None


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": "x"},
        {"access_token": "x", "token_type": "N_A"},
        {"access_token": "x", "token_type": "DPoP"},
        {"access_token": "two\nlines", "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": 7, "token_type": "Bearer"},
        {"access_token": "x" * 20_000, "token_type": "Bearer"},
        {},
    ],
)
async def test_an_answer_that_is_no_token_is_none(answer: dict[str, Any]) -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(answer)
        make = client_credentials(server, TOKEN_URL, US, audience=UPSTREAM_URL, scope="")
        with pytest.raises(BackendError):
            await credential(house, make, for_everybody).headers(None)


def _exchange(house: House, server: FakeAuthorizationServer) -> TokenCredential:
    return credential(
        house,
        exchanged(
            server,
            TOKEN_URL,
            US,
            house.issuer(),
            server="main",
            audience=UPSTREAM_URL,
            scope="files",
        ),
    )


def _assertion(house: House, server: FakeAuthorizationServer) -> TokenCredential:
    return credential(
        house,
        asserted(
            server,
            TOKEN_URL,
            US,
            house.issuer(),
            authorization_server=ISSUER,
            server="main",
            audience=UPSTREAM_URL,
            scope="files",
        ),
    )


async def test_an_exchange_shows_who_calls_to_the_authorization_server_alone_and_brings_a_token_for_them() -> (
    None
):
    async with open_house() as house:
        server = FakeAuthorizationServer(
            lambda form: tokens(f"for {len(form)}".replace(" ", "-")), tokens("next")
        )
        mine = _exchange(house, server)
        assert await token_of(mine, call_of()) == "for-6"
        form = server.forms[0]
        _, claims = read(house, form.pop("subject_token"))
        assert (claims["sub"], claims["aud"], claims["act"]) == ("usr_ann", TOKEN_URL, {"sub": "ostiary-cli"})
        assert form == {
            "grant_type": TOKEN_EXCHANGE,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "resource": UPSTREAM_URL,
            "scope": "files",
        }
        assert await token_of(mine, call_of()) == "for-6"
        assert await token_of(mine, call_of("usr_bob")) == "next"


async def test_a_refusal_for_one_person_is_none_for_another() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer({"error": "invalid_target"}, tokens("bobs"))
        mine = _exchange(house, server)
        with pytest.raises(BackendError):
            await mine.headers(call_of())
        assert await token_of(mine, call_of("usr_bob")) == "bobs"


@pytest.mark.parametrize("way", [_exchange, _assertion])
@pytest.mark.parametrize(
    "kind", [PrincipalKind.ANONYMOUS, PrincipalKind.PAYER, PrincipalKind.CLIENT, PrincipalKind.LOCAL]
)
async def test_nobody_is_exchanged_for_a_person_who_is_none(
    kind: PrincipalKind, way: Callable[[House, FakeAuthorizationServer], TokenCredential]
) -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("never"))
        with pytest.raises(BackendError, match="log in with an account"):
            await way(house, server).headers(call_of("x", None, kind))
        assert server.forms == []


async def test_what_is_shown_to_an_authorization_server_is_for_none_of_our_own() -> None:
    async with open_house() as house:
        ask, issuer = FakeAuthorizationServer({}), house.issuer()
        with pytest.raises(ValueError, match="let the upstream in here"):
            exchanged(ask, ORIGIN, US, issuer, server="main", audience=UPSTREAM_URL, scope="")
        with pytest.raises(ValueError, match="let the upstream in here"):
            asserted(
                ask,
                TOKEN_URL,
                US,
                issuer,
                authorization_server=ORIGIN,
                server="main",
                audience=UPSTREAM_URL,
                scope="",
            )


class Showing:
    """A credential that shows what it is told to."""

    def __init__(self) -> None:
        self.shown: Mapping[str, str] = {}

    def trouble(self) -> Trouble | None:
        return Trouble(words="wants a login", since=1)

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return self.shown

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return challenge == "Bearer"


async def test_what_the_settings_send_goes_with_a_token_and_is_put_together_once_for_each() -> None:
    ours = Showing()
    both = WithHeaders(
        ours, StaticCredential({"X-Team": Stated("one"), "Authorization": Stated("of the settings")})
    )
    assert await both.headers(None) == {"X-Team": "one", "Authorization": "of the settings"}
    for token in ("first", "second"):
        ours.shown = {"Authorization": f"Bearer {token}"}
        shown = await both.headers(None)
        assert shown == {"X-Team": "one", "Authorization": f"Bearer {token}"}
        assert await both.headers(None) is shown
    assert both.trouble() == ours.trouble()
    assert [await both.refused(None, challenge) for challenge in ("Bearer", "Basic")] == [True, False]


async def test_an_assertion_of_ours_is_what_our_own_receiving_side_takes() -> None:
    async with open_house() as house:
        server = FakeAuthorizationServer(tokens("theirs"))
        assert await token_of(_assertion(house, server), call_of()) == "theirs"
        form = server.forms[0]
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        believed = Provider(
            name="us",
            kind="oidc",
            label="us",
            issuer=ORIGIN,
            client_id="x",
            secret=None,
            allow={},
            assertions=True,
        )
        statement = identity_assertions.read(
            form["assertion"], client_id="us", names={ISSUER}, providers=[believed], now=house.clock()
        )
        keys = json.loads(house.identity.parts.keys.ring.jwks(house.clock()))["keys"]
        found = identity_assertions.believed(statement, keys)
        assert (found.person.subject, found.resources, found.scope) == ("usr_ann", (UPSTREAM_URL,), "files")
        with pytest.raises(identity_assertions.BadAssertion):
            identity_assertions.read(
                form["assertion"], client_id="us", names={TOKEN_URL}, providers=[believed], now=house.clock()
            )


BEST = {"access_token": "a", "token_type": "Bearer"}


@pytest.mark.parametrize(
    ("status", "said", "words", "final"),
    [
        (400, {"error": "invalid_grant"}, "(invalid_grant)", True),
        (401, {"error": "invalid_client"}, "(invalid_client)", True),
        (499, {"error": "invalid_scope"}, "(invalid_scope)", True),
        (500, {"error": "invalid_grant"}, "status 500", False),
        (400, {"error": "slow_down"}, "(slow_down)", False),
        (400, {"error": "x" * 41}, f"({'x' * 40})", False),
        (400, {"error": "h4ck"}, "status 400", False),
        (400, {"error": 1}, "status 400", False),
        (200, {}, "no usable access token", False),
        (200, {"error": "invalid_grant"}, "(invalid_grant)", True),
        (429, {"error": "invalid_grant"}, "busy", False),
        (201, BEST, "status 201", False),
    ],
)
async def test_what_is_no_token_says_why_and_whether_asking_again_is_in_vain(
    status: int, said: dict[str, object], words: str, final: bool
) -> None:
    async def ask(*_: object, **__: object) -> OAuthAnswer:
        return OAuthAnswer(status=status, body=json.dumps(said).encode())

    with pytest.raises(OAuthFailure) as caught:
        await fetch_tokens(ask, TOKEN_URL, {}, US)
    assert words in str(caught.value)
    assert caught.value.final is final
