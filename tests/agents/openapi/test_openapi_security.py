"""As whom an API is called, and that nothing of it is ever told."""

from __future__ import annotations

from base64 import b64encode
from io import StringIO
from typing import Any

import msgspec
import pytest
from api_pair import against, api, ask_for, document, opened, text
from structlog import get_logger

from server.agents.openapi.api_credentials import ask_token
from server.agents.openapi.openapi_agent import open_api
from server.agents.openapi.openapi_settings import ClientGrant, OpenApiConfig, problems
from server.lib.oauth_client.token_requests import Tokens
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError
from server.settings.secret_reference import SecretUnreadable
from tests.agents.python.fake_agent import Exchange, fake_agent, says

KEY = "k3y/with+signs="
GRANT = {
    "token_url": "http://localhost:1/token",
    "client_id": "us",
    "client_secret": "env:SECRET",
    "scope": "berths:read",
}


async def test_a_key_goes_where_the_scheme_says_and_what_needs_another_is_left_out() -> None:
    sink = StringIO()
    async with against(document("library"), says({}), given={"CardKey": KEY}, sink=sink) as (
        agent,
        under_test,
    ):
        await ask_for(under_test, "getBook", bookId="7")
        await ask_for(under_test, "opening_hours")
        assert [seen.headers.get("x-card-key") for seen in agent.requests] == [KEY, None]
        assert "post_loans" not in {tool.name for tool in under_test.tools()}
    assert "POST /loans: it needs a credential for Librarian" in sink.getvalue()
    assert KEY not in sink.getvalue()


async def test_basic_bearer_query_and_cookie() -> None:
    async with against(document("library"), says({}), given={"Librarian": "me:pass"}) as (agent, under_test):
        await ask_for(under_test, "post_loans", body={"book": "1", "reader": "2"})
        assert agent.requests[0].headers["authorization"] == "Basic " + b64encode(b"me:pass").decode()
    async with against(document("harbour"), says({"data": []}), given={"Token": "t0ken", "Tenant": "a&b"}) as (agent, under_test):  # fmt: skip
        await ask_for(under_test, "list-berths", sort=["x"])
        (seen,) = agent.requests
        assert (seen.target, seen.headers["authorization"]) == (
            "/api/berths?sort=x&tenant=a%26b",
            "Bearer t0ken",
        )
    data = api(
        {"/a": {"get": {"security": [{"S": []}], "responses": {}}}},
        components={"securitySchemes": {"S": {"type": "apiKey", "in": "cookie", "name": "sid"}}},
    )
    async with against(data, says({}), given={"S": "c;d"}) as (agent, under_test):
        await ask_for(under_test, "get_a")
        assert agent.requests[0].headers["cookie"] == "sid=c%3Bd"


async def test_without_credentials_everything_is_offered_and_sent_with_the_headers_of_the_settings() -> None:
    async with against(document("library"), says({}), headers={"X-Card-Key": KEY}) as (agent, under_test):
        assert len(under_test.tools()) == 8
        await ask_for(under_test, "getBook", bookId="7")
        assert agent.requests[0].headers["x-card-key"] == KEY


async def test_what_a_caller_says_never_takes_the_place_of_a_credential() -> None:
    data = api(
        {
            "/a": {
                "get": {
                    "parameters": [
                        {"name": "x-key", "in": "header", "schema": {"type": "string"}},
                        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                    ],
                    "responses": {},
                }
            }
        },
        security=[{"S": []}],
        components={"securitySchemes": {"S": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
    )
    async with against(data, says({}), given={"S": KEY}) as (agent, under_test):
        assert list(under_test.tools()[0].input_schema["properties"]) == []
        await ask_for(under_test, "get_a", **{"x-key": "mine"})
        assert agent.requests[0].headers["x-key"] == KEY


async def test_what_an_api_repeats_of_a_credential_is_blotted_out() -> None:
    async def repeats(exchange: Exchange) -> None:
        await exchange.reply({"got": exchange.request.headers["x-card-key"]}, status=403)

    async with against(document("library"), repeats, given={"CardKey": KEY}) as (_, under_test):
        assert (
            text(await ask_for(under_test, "getBook", bookId="7")) == 'The API answered 403: {"got": "***"}'
        )


class TokenEndpoint:
    """Answers in place of one, and counts."""

    def __init__(self, *answers: Tokens) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, grant: ClientGrant, secret: Secret) -> Tokens:
        self.asked += 1
        assert (grant.client_id, grant.scope, secret.reveal()) == ("us", "berths:read", "s3cret")
        return self.answers.pop(0)


async def test_a_token_is_asked_for_once_and_again_when_it_is_refused() -> None:
    statuses = [200, 200, 401, 200, 401, 401]

    async def answers(exchange: Exchange) -> None:
        await exchange.reply({"data": []}, status=statuses.pop(0))

    asks = TokenEndpoint(*(Tokens(access_token=Secret(f"token-{n}"), expires_in=3600) for n in range(4)))
    settings = {"credentials": {"Pilot": GRANT}, "given": {"Pilot": "s3cret"}, "ask": asks}
    async with against(document("harbour"), answers, **settings) as (agent, under_test):
        for _ in range(3):
            assert not (await ask_for(under_test, "list-berths")).is_error
        refused = await ask_for(under_test, "list-berths")
        assert text(refused).startswith("The API answered 401")
        shown = [seen.headers["authorization"] for seen in agent.requests]
        assert shown == [f"Bearer token-{n}" for n in (0, 0, 0, 1, 1, 2)]
        assert asks.asked == 3


async def test_a_token_endpoint_is_asked_as_the_client_and_its_failures_are_told_in_a_few_words() -> None:
    async def gives(exchange: Exchange) -> None:
        assert exchange.request.headers["authorization"] == "Basic " + b64encode(b"us:s%2F1").decode()
        assert exchange.request.body == b"grant_type=client_credentials&scope=berths%3Aread"
        await exchange.reply({"access_token": "t"})

    async with fake_agent(gives) as endpoint:
        grant = msgspec.convert({**GRANT, "token_url": endpoint.url}, ClientGrant)
        assert await ask_token(grant, Secret("s/1")) == Tokens(access_token=Secret("t"))
    for handler, why in (
        (says({"error": "s/1"}, status=400), "answered 400"),
        (says({"error": "secret"}), "answered 200"),
        (says(b"no"), "JSON object"),
        (says(b"[]"), "JSON object"),
        (says({"access_token": "a\nb"}), "no usable access token"),
    ):
        async with fake_agent(handler) as endpoint:
            grant = msgspec.convert({**GRANT, "token_url": endpoint.url}, ClientGrant)
            with pytest.raises(BackendError, match=why) as caught:
                await ask_token(grant, Secret("s/1"))
            assert "s/1" not in str(caught.value)


@pytest.mark.parametrize(
    ("schemes", "why"),
    [
        ({}, "has no security scheme 'S', for which there is a credential; it has none"),
        ({"S": {"type": "mutualTLS"}}, "nothing can be sent"),
        ({"S": {"type": "http", "scheme": "digest"}}, "basic and bearer are spoken"),
        ({"S": {"type": "apiKey", "in": "body", "name": "k"}}, "where the key of 'S' belongs"),
    ],
)
async def test_a_credential_without_a_place_is_refused_at_the_start(
    schemes: dict[str, Any], why: str
) -> None:
    data = api({"/a": {"get": {"responses": {}}}}, components={"securitySchemes": schemes})
    with pytest.raises(BackendError, match=why):
        async with opened(data, given={"S": KEY}):
            pass


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "key", "why"),
    [
        ({"document": "https://a.example/x.yaml"}, "sha256", "cannot become another"),
        ({"document": "https://me:pass@a.example/x.yaml", "sha256": "0" * 64}, "document", "must not hold credentials"),
        ({"sha256": "abc"}, "sha256", "64 hexadecimal digits"),
        ({"base_url": "ftp://x"}, "base_url", "http"),
        ({"base_url": "https://a.example/?x=1"}, "base_url", "query"),
        ({"credentials": {"S": "in-clear"}}, "credentials.S", "must be a reference"),
        ({"credentials": {"S": {**GRANT, "client_secret": "in-clear"}}}, "credentials.S", "must be a reference"),
        ({"credentials": {"S": {**GRANT, "token_url": "nowhere"}}}, "credentials.S.token_url", "http"),
        ({"credentials": {"S": {**GRANT, "token_url": "http://a.example/"}}}, "credentials.S.token_url", "in the open; write an https"),
        ({"headers": {"Host": "x"}}, "headers.Host", "set by the server itself"),
        ({"headers": {"Cookie": "x"}}, "headers.Cookie", "set by the server itself"),
        ({"headers": {"a b": "x"}}, "headers", "not a header name"),
        ({"headers": {"x": "a\nb"}}, "headers.x", "ASCII"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused_without_their_values(
    settings: dict[str, Any], key: str, why: str
) -> None:
    made = msgspec.convert({"document": "api.yaml", **settings}, OpenApiConfig)
    (found,) = problems(made)
    assert found[0] == key
    assert why in found[1]
    assert "in-clear" not in str(found)
    assert "in-clear" not in repr(made)


def test_a_credential_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING", raising=False)
    made = msgspec.convert({"document": "api.yaml", "credentials": {"S": "env:MISSING"}}, OpenApiConfig)
    with pytest.raises(SecretUnreadable, match="MISSING is not set"):
        open_api(made, name="main[1]", log=get_logger())
    monkeypatch.setenv("BROKEN", "a\x01b")
    made = msgspec.convert({"document": "api.yaml", "headers": {"x": "env:BROKEN"}}, OpenApiConfig)
    with pytest.raises(SecretUnreadable, match="header x"):
        open_api(made, name="main[1]", log=get_logger())


OBJECT = {"type": "object", "additionalProperties": {"type": "string"}}
FORM = {"application/x-www-form-urlencoded": {"schema": OBJECT}}


def keyed(where: str, *parameters: dict[str, Any], **more: Any) -> bytes:
    scheme = {"type": "apiKey", "in": where, "name": "api_key"}
    operation = {"security": [{"S": []}], "parameters": list(parameters), "responses": {}, **more}
    return api({"/a": {"post": operation}}, components={"securitySchemes": {"S": scheme}})


@pytest.mark.parametrize(("where", "name"), [("query", "api_key"), ("query", "API_KEY"), ("cookie", "api_key"), ("header", "Api-Key")])  # fmt: skip
@pytest.mark.parametrize("required", [True, False])
async def test_a_parameter_named_like_a_credential_is_no_argument(
    where: str, name: str, required: bool
) -> None:
    own = {"name": name, "in": where, "schema": {"type": "string"}, "required": required}
    other = {"name": "q", "in": "query", "schema": {"type": "string"}}
    async with against(keyed(where, own, other), says({}), given={"S": "OURS"}) as (agent, under_test):
        (tool,) = under_test.tools()
        assert list(tool.input_schema["properties"]) == ["q"]
        await ask_for(under_test, "post_a", q="1", **{name: "mine"})
        (seen,) = agent.requests
        sent = f"{seen.target} {seen.headers}"
        assert "OURS" in sent and "mine" not in sent


@pytest.mark.parametrize(
    ("where", "style", "explode"),
    [
        ("query", "form", True),
        ("query", "deepObject", True),
        ("cookie", "form", True),
    ],
)
@pytest.mark.parametrize("key", ["api_key", "API_KEY", "api_key[]", "api.key", " api_key"])
async def test_an_object_holds_no_name_of_a_credential(
    where: str, style: str, explode: bool, key: str
) -> None:
    named = {"name": "f", "in": where, "style": style, "explode": explode, "schema": OBJECT}
    async with against(keyed(where, named), says({}), given={"S": "OURS"}) as (agent, under_test):
        refused = await ask_for(under_test, "post_a", f={"a": "1", key: "mine"})
        if style == "deepObject":  # f[api_key], which is another name
            assert not refused.is_error
        else:
            assert refused.is_error and "leave it out" in text(refused) and agent.requests == []
        assert not (await ask_for(under_test, "post_a", f={"a": "1"})).is_error
        assert "OURS" in f"{agent.requests[-1].target} {agent.requests[-1].headers}"


async def test_a_form_holds_no_name_of_a_credential_that_stands_in_the_query() -> None:
    data = keyed("query", requestBody={"content": FORM})
    async with against(data, says({}), given={"S": "OURS"}) as (agent, under_test):
        refused = await ask_for(under_test, "post_a", body={"api_key": "mine"})
        assert refused.is_error and agent.requests == []
        assert not (await ask_for(under_test, "post_a", body={"key": "mine"})).is_error
