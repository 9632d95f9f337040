"""Authlib's defaults, and what ours do instead: each test states both, so that an upgrade that moves one shows.

The numbers are those of the module docstring of auth/endpoints/token_endpoint.py. Here is every trap that concerns logins and refresh.
"""

# The stock classes are subclassed as their manual shows it, which their own types do not allow.
# pyright: reportIncompatibleMethodOverride=false, reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import base64
import json
import logging
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from authlib.oauth2 import OAuth2Error, OAuth2Request
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin
from authlib.oauth2.rfc6749.errors import InsecureTransportError, InvalidClientError
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, BaseGrant, RefreshTokenGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint, DeviceCodeGrant
from authlib.oauth2.rfc9068 import (
    JWTBearerTokenGenerator,
    JWTBearerTokenValidator,
    JWTIntrospectionEndpoint,
    JWTRevocationEndpoint,
)
from authlib.oauth2.rfc9207 import IssuerParameter
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet
from msgspec.structs import replace

from auth.clients import client_registry as clients
from auth.clients.client_registry import CLI_CLIENT_ID, ClientCredentials
from auth.endpoints import token_endpoint
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import Issue
from auth.tokens.access_token_verifier import BadToken, read
from auth.values.identity_model import DEVICE_CODE, REFRESH_TOKEN
from auth.values.oauth_errors import OAuthRefusal
from tests.auth import token_fakes
from tests.auth.code_fakes import answer_of, open_porch
from tests.auth.identity_fakes import (
    MINUTE,
    ORIGIN,
    POLICY,
    SITE,
    START,
    World,
    get,
    logged_in,
    open_identity,
    post,
    refresh_token,
)
from tests.auth.registration_fakes import ask

ISSUER = "https://as.example"
SECONDS = START // 1_000


class StockClient(ClientMixin):
    """As a first reader of Authlib's manual would write it."""

    def __init__(self, secret: str = "") -> None:
        self.secret = secret

    def get_client_id(self) -> str:
        return "c"

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        # The SQLAlchemy mixin that Authlib ships: only the token endpoint looks at the client's method.
        return endpoint != "token" or method == ("client_secret_basic" if self.secret else "none")

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in (DEVICE_CODE, REFRESH_TOKEN)


class StockRequest(OAuth2Request):
    def __init__(self, uri: str = ISSUER + "/token", method: str = "POST", **form: str) -> None:
        super().__init__(method, uri)
        self.payload = BasicOAuth2Payload({"client_id": "c", **form})

    @property
    def form(self) -> dict[str, str]:
        return self.payload.data


class StockServer(AuthorizationServer):
    def __init__(self, client: StockClient | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self.client = client or StockClient()
        self.saved: list[Any] = []

    def query_client(self, client_id: str) -> StockClient | None:
        return self.client if client_id == "c" else None

    def save_token(self, token: Any, request: Any) -> None:
        self.saved.append(token)

    def create_oauth2_request(self, request: Any) -> Any:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> tuple[int, Any, Any]:
        return status, body, headers

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass


class StockDeviceGrant(DeviceCodeGrant):
    def query_device_credential(self, device_code: str) -> Any:
        if device_code != "known":
            return None
        return SimpleNamespace(
            get_client_id=lambda: "c",
            is_expired=lambda: False,
            get_user_code=lambda: "u",
            get_scope=lambda: "",
        )

    def query_user_grant(self, user_code: str) -> Any:
        return SimpleNamespace(get_user_id=lambda: "usr"), True


class StockDeviceEndpoint(DeviceAuthorizationEndpoint):
    def get_verification_uri(self) -> str:
        return ISSUER + "/device"

    def save_device_credential(self, client_id: str, scope: str, data: Any) -> None:
        pass


def plain_token(**kwargs: Any) -> dict[str, Any]:
    return {"token_type": "Bearer", "access_token": "raw-access-token", "refresh_token": "raw-refresh-token"}


def stock_device_server() -> StockServer:
    server = StockServer()
    server.register_grant(StockDeviceGrant)
    server.register_token_generator("default", plain_token)
    return server


def redeemed(server: StockServer, code: str = "known") -> Any:
    return server.create_token_response(StockRequest(grant_type=DEVICE_CODE, device_code=code))


def exchanged(
    world: World, credentials: ClientCredentials | None = None, grant_type: str = DEVICE_CODE, **form: str
) -> Issue | OAuthRefusal:
    exchange = world.exchange(
        TokenForm(
            grant_type=grant_type,
            credentials=credentials or ClientCredentials(client_id=CLI_CLIENT_ID),
            **form,
        )
    )
    return world.db.run(lambda db: token_endpoint.exchange_token(db, exchange))


def test_t1_a_device_code_gives_tokens_once(world: World) -> None:
    server = stock_device_server()
    assert [redeemed(server)[0] for _ in range(2)] == [200, 200]

    codes = world.asked()
    world.approve(codes)
    code = codes.device_code.reveal()
    assert isinstance(exchanged(world, device_code=code), Issue)
    second = exchanged(world, device_code=code)
    assert isinstance(second, OAuthRefusal)
    assert second.error == "invalid_grant"


def test_t2_an_unknown_device_code_is_an_invalid_grant(world: World) -> None:
    status, body, _ = redeemed(stock_device_server(), "unknown")
    assert (status, body["error"]) == (400, "invalid_request")

    refused = exchanged(world, device_code="unknown")
    assert isinstance(refused, OAuthRefusal)
    assert refused.error == "invalid_grant"


async def test_t3_the_device_endpoint_checks_secret_grant_and_scope_and_is_short_lived() -> None:
    server = StockServer(StockClient(secret="secret"))
    server.register_endpoint(StockDeviceEndpoint)  # type: ignore[arg-type]
    status, body, _ = server.create_endpoint_response(
        "device_authorization", StockRequest(method="GET", scope="anything")
    )
    assert (status, body["expires_in"]) == (200, 1800)  # without the secret, by GET, for any scope

    async with open_identity() as identity:
        registration = clients.ClientRegistration(
            name="T", client_id="t", auth_method="client_secret_basic", grant_types=(REFRESH_TOKEN,)
        )
        added = await identity.parts.store.write(
            lambda db: clients.add(db, registration, seed=b"s" * 32, by="local:0", now=START)
        )
        assert added is not None
        assert added.secret is not None
        path, secret = "/device_authorization", added.secret.reveal()
        answers = [
            await identity.handle(request)
            for request in (
                get(path),
                post(path, client_id="t"),
                post(path, client_id="t", client_secret=secret),
                post(path, client_id=CLI_CLIENT_ID, scope="anything"),
                post(path, client_id=CLI_CLIENT_ID),
            )
        ]
        errors = [json.loads(answer.body).get("error") for answer in answers if answer is not None]
        assert errors == ["invalid_request", "invalid_client", "unauthorized_client", "invalid_scope", None]
        assert json.loads(answers[-1].body)["expires_in"] == 600  # type: ignore[union-attr]


async def test_t4_no_way_leads_past_pkce() -> None:
    challenge = CodeChallenge(required=True)
    without = SimpleNamespace(request=StockRequest())
    assert challenge.validate_code_challenge(without, None) is None  # accepted
    assert CodeChallenge.DEFAULT_CODE_CHALLENGE_METHOD == "plain"

    async with open_porch() as porch:
        program, browser = await porch.program(), await porch.browser()
        for left_out in ("code_challenge", "code_challenge_method"):
            refused = answer_of(await browser.get(program.path(**{left_out: None}), follow=False))
            assert refused["error"] == "invalid_request"
            assert "code" not in refused


async def test_t5_an_error_carries_the_issuer_as_well() -> None:
    class Stock(IssuerParameter):
        def get_issuer(self) -> str:
            return ISSUER

    response = SimpleNamespace(location="https://client.example/cb?iss=evil")
    Stock().add_issuer_parameter(None, response)
    assert response.location.count("iss=") == 2  # and what get_consent_grant raises never comes here

    async with open_porch() as porch:
        program = await porch.program(redirect_uris=("https://client.example/cb?iss=evil",))
        browser = await porch.browser()
        refused = answer_of(await browser.get(program.path(response_type="token"), follow=False))
        assert refused["iss"] == porch.identity.parts.site.issuer


async def test_t12_a_replayed_code_ends_what_it_gave() -> None:
    stock = set(vars(AuthorizationCodeGrant))
    assert "delete_authorization_code" in stock  # after which nobody knows what a replay should end
    assert not {name for name in stock if "revoke" in name or "reuse" in name or "replay" in name}

    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        assert (await program.redeem(code)).status == 200
        assert (await program.redeem(code)).status == 400
        (grant,) = await porch.rows("grants")
        assert grant["revoked_at"] is not None


class StockGenerator(JWTBearerTokenGenerator):
    keys: Any = None

    def get_jwks(self) -> Any:
        return self.keys


def stock_token(keys: Any, grant_type: str = "authorization_code") -> str:
    generator = StockGenerator(ISSUER, alg="ES256")
    generator.keys = keys
    return generator.access_token_generator(StockClient(), grant_type, None, "mcp")


def test_t6_one_explicit_key_signs_and_is_named(world: World) -> None:
    single = ECKey.generate_key("P-256")
    assert "kid" not in jwt.decode(stock_token(single), single, algorithms=["ES256"]).header
    both = KeySet([ECKey.generate_key("P-256", {"kid": kid}) for kid in ("old", "new")])
    used = Counter(jwt.decode(stock_token(both), both, algorithms=["ES256"]).header["kid"] for _ in range(64))
    assert set(used) == {"old", "new"}  # drawn at random: 2**-63 that it is not seen

    for _ in range(8):
        assert token_fakes.parts_of(token_fakes.mint())[0]["kid"] == token_fakes.KEY.kid


def test_t7_audience_and_lifetime_are_ours() -> None:
    key = ECKey.generate_key("P-256")
    claims = jwt.decode(stock_token(key), key, algorithms=["ES256"]).claims
    assert claims["aud"] == "c"
    assert claims["exp"] - claims["iat"] == 864_000

    ours = token_fakes.parts_of(token_fakes.mint())[1]
    assert ours["aud"] == SITE.audience("agent")
    assert ours["exp"] - ours["iat"] == POLICY.tokens.access_ms // 1_000


def test_t8_type_and_audience_are_required_and_clocks_may_differ() -> None:
    key = ECKey.generate_key("P-256")

    class Validator(JWTBearerTokenValidator):
        def get_jwks(self) -> Any:
            return key

    claims = {
        "iss": ISSUER,
        "sub": "s",
        "aud": "somebody else",
        "client_id": "c",
        "jti": "1",
        "iat": 1,
        "exp": 4_000_000_000,
    }
    untyped = jwt.encode({"alg": "ES256"}, claims, key, algorithms=["ES256"], default_type=None)
    validator = Validator(issuer=ISSUER, resource_server=None)
    token = validator.authenticate_token(untyped)
    validator.validate_token(token, [], None)  # no typ, any audience: accepted

    with pytest.raises(BadToken, match="typ"):
        read(token_fakes.signed(token_fakes.head(typ=None)), ORIGIN, token_fakes.RING, START)
    assert read(
        token_fakes.signed(payload=token_fakes.claims(iat=SECONDS + 30)),
        ORIGIN,
        token_fakes.RING,
        START,
    )


class StockRegistration(ClientRegistrationEndpoint):
    def authenticate_token(self, request: Any) -> Any:
        return "anybody"

    def get_server_metadata(self) -> Any:
        return {}

    def save_client(self, client_info: Any, client_metadata: Any, request: Any) -> Any:
        return None


def stock_registration(**said: Any) -> tuple[int, dict[str, Any]]:
    endpoint = StockRegistration()
    try:
        status, body, _ = endpoint(SimpleNamespace(payload=SimpleNamespace(data=said)))
    except OAuth2Error as error:
        return error.status_code, {"error": error.error}
    return status, body


async def test_t9_redirect_addresses_types_and_secrets_are_judged_by_us() -> None:
    cases: list[tuple[dict[str, Any], int, int]] = [
        # said, stock, ours
        ({"redirect_uris": ["javascript://x/%0aalert(1)"]}, 201, 400),
        ({"redirect_uris": ["data://x/y"]}, 201, 400),
        ({"redirect_uris": ["http://evil.example/cb"]}, 201, 400),
        ({"client_name": ["not", "a", "text"]}, 201, 400),
        ({"redirect_uris": ["com.example.app:/cb"]}, 400, 201),
    ]
    usual = {"redirect_uris": ["http://127.0.0.1/cb"], "token_endpoint_auth_method": "none"}
    async with open_identity() as identity:
        for said, stock, ours in cases:
            assert stock_registration(**{**usual, **said})[0] == stock, said
            reply = await identity.handle(ask("/register", {**usual, **said}))
            assert reply is not None
            assert reply.status == ours, said
        assert "client_secret" in stock_registration(**usual)[1]
        reply = await identity.handle(ask("/register", usual))
        assert reply is not None
        assert not {"client_secret", "client_secret_expires_at"} & set(json.loads(reply.body))


async def test_t10_a_parameter_that_comes_twice_is_refused() -> None:
    request = StockRequest(grant_type=DEVICE_CODE, device_code="known")
    request.payload.datalist["device_code"].append("other")
    assert stock_device_server().create_token_response(request)[0] == 200

    async with open_identity() as identity:
        twice = post(
            "/token", ("device_code", "a"), ("device_code", "b"), client_id="x", grant_type=DEVICE_CODE
        )
        reply = await identity.handle(twice)
        assert reply is not None
        assert json.loads(reply.body)["error"] == "invalid_request"


def test_t11_public_clients_refresh_and_get_the_next_token(world: World) -> None:
    assert RefreshTokenGrant.TOKEN_ENDPOINT_AUTH_METHODS == ["client_secret_basic"]
    assert BaseGrant.TOKEN_ENDPOINT_AUTH_METHODS == ["client_secret_basic"]
    assert RevocationEndpoint.CLIENT_AUTH_METHODS == ["client_secret_basic"]
    assert IntrospectionEndpoint.CLIENT_AUTH_METHODS == ["client_secret_basic"]
    assert RefreshTokenGrant.INCLUDE_NEW_REFRESH_TOKEN is False

    issue = exchanged(world, grant_type=REFRESH_TOKEN, refresh_token=refresh_token(world.login()))
    assert isinstance(issue, Issue)
    assert issue.counter == 2


def test_t13_no_socket_makes_a_request_insecure(world: World) -> None:
    with pytest.raises(InsecureTransportError):
        StockRequest(uri="http://10.0.0.5/token")

    world.site = replace(SITE, issuer="http://10.0.0.5", loopback=False)
    refused = exchanged(world, device_code="x")
    assert isinstance(refused, OAuthRefusal)
    assert refused.error == "invalid_grant"


def test_t14_authlib_prints_tokens_and_is_kept_from_it(world: World) -> None:
    output = StringIO()
    handler, root = logging.StreamHandler(output), logging.getLogger()
    # Stock: its own logger, asked directly, prints the whole answer.
    talker = logging.getLogger("authlib.oauth2.rfc8628.device_code")
    before = (root.level, talker.level)
    try:
        talker.addHandler(handler)
        talker.setLevel(logging.DEBUG)
        redeemed(stock_device_server())
        assert "raw-access-token" in output.getvalue()
        assert "raw-refresh-token" in output.getvalue()
        talker.removeHandler(handler)

        # Ours: even then nothing of it gets to whoever logs everything.
        output.truncate(0)
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        redeemed(stock_device_server())
        talker.setLevel(before[1])
        redeemed(stock_device_server())
        world.login()
        exchanged(world, ClientCredentials(client_id=CLI_CLIENT_ID, secret="wrong"))
        assert "raw-" not in output.getvalue()
        assert "authlib" not in output.getvalue()
    finally:
        root.removeHandler(handler)
        talker.removeHandler(handler)
        root.setLevel(before[0])
        talker.setLevel(before[1])


def test_t15_what_is_issued_knows_its_request(world: World) -> None:
    seen: dict[str, Any] = {}

    def generator(**kwargs: Any) -> dict[str, Any]:
        seen.update(kwargs)
        return plain_token()

    server = stock_device_server()
    server.register_token_generator("default", generator)
    redeemed(server)
    assert set(seen) == {"grant_type", "client", "user", "scope", "expires_in", "include_refresh_token"}

    issue = world.login(resources=(ORIGIN + "/other/mcp",))
    assert (issue.server, issue.auth_time) == ("other", START)
    assert issue.grant_id.startswith("grt_")


async def test_t16_a_jwt_can_be_revoked() -> None:
    key = ECKey.generate_key("P-256")

    class Stock(JWTRevocationEndpoint):
        CLIENT_AUTH_METHODS = ("none",)

        def get_jwks(self) -> Any:
            return key

    server = StockServer()
    server.register_endpoint(Stock(issuer=ISSUER))
    status, body, _ = server.create_endpoint_response("revocation", StockRequest(token=stock_token(key)))
    assert (status, body["error"]) == (401, "unsupported_token_type")

    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        reply = await identity.handle(post("/revoke", client_id=CLI_CLIENT_ID, token=token))
        assert reply is not None
        assert reply.status == 200
        live = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT id FROM grants WHERE revoked_at IS NULL")
        )
        assert live == []


async def test_t16_a_jwt_can_be_introspected_and_a_refresh_token_too() -> None:
    key = ECKey.generate_key("P-256")

    class Stock(JWTIntrospectionEndpoint):
        CLIENT_AUTH_METHODS = ("none",)

        def get_jwks(self) -> Any:
            return key

        def check_permission(self, token: Any, client: Any, request: Any) -> bool:
            return True

    server = StockServer()
    server.register_endpoint(Stock(issuer=ISSUER))
    # What is no JWT is passed on, and nobody answers at all.
    assert server.create_endpoint_response("introspection", StockRequest(token="rt1.refresh")) is None

    async with open_identity() as identity:
        registration = clients.ClientRegistration(
            name="Gateway", client_id="g", auth_method="client_secret_post", grant_types=(), introspects=True
        )
        added = await identity.parts.store.write(
            lambda db: clients.add(db, registration, seed=b"s" * 32, by="local:0", now=START)
        )
        assert added is not None
        assert added.secret is not None
        form = {"client_id": "g", "client_secret": added.secret.reveal()}
        tokens = await logged_in(identity)
        for kind in ("access_token", "refresh_token"):
            reply = await identity.handle(post("/introspect", **form, token=tokens[kind]))
            assert reply is not None
            assert json.loads(reply.body)["active"] is True


def test_t17_authlib_sees_the_checked_body_and_nothing_else(world: World) -> None:
    request = token_endpoint._Request(world.db, DEVICE_CODE, ClientCredentials(client_id="c"))
    assert request.payload.data == {"grant_type": DEVICE_CODE}
    assert request.headers == {}
    with pytest.raises(NotImplementedError):
        _ = request.args


def test_a_failed_client_names_its_methods_in_stock_and_nothing_in_ours(world: World) -> None:
    with pytest.raises(InvalidClientError) as caught:
        StockServer(StockClient(secret="s")).authenticate_client(StockRequest(), ["client_secret_basic"])
    _, body, headers = caught.value()
    assert "WWW-Authenticate" in dict(headers)  # whether or not Basic was used
    assert "client_secret_basic" in body["error_description"]

    refused = exchanged(world, ClientCredentials(client_id="nobody"), device_code="x")
    assert isinstance(refused, OAuthRefusal) and refused.error == "invalid_client"
    assert not any(method in refused.description for method in clients.AUTH_METHODS)


def test_stock_basic_credentials_that_are_not_utf8_would_be_a_crash() -> None:
    request = StockRequest()
    request.headers = {"Authorization": "Basic " + base64.b64encode(b"\xff\xfe:x").decode()}
    with pytest.raises(UnicodeDecodeError):
        StockServer().authenticate_client(request, ["client_secret_basic"])


def test_only_one_module_imports_authlib() -> None:
    importers = [
        path.name
        for path in Path(sys.modules["auth"].__path__[0]).rglob("*.py")
        if "import authlib" in (text := path.read_text()) or "from authlib" in text
    ]
    assert importers == ["token_endpoint.py"]


def test_the_lifetimes_above_are_the_ones_in_force() -> None:
    assert POLICY.device.lifetime_ms == 10 * MINUTE
    assert POLICY.tokens.access_ms == 60 * MINUTE
