"""From a bare 401 to a tool's answer with nothing but curl: every address is taken from the answer before it.

Here also what clients find who only look: each verb, and the documents that they probe for and that are not published.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, NamedTuple

import pytest
from programs import WAIT_SECONDS, House, Program

pytestmark = pytest.mark.slow

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "by hand"}},
}
# What clients of several makers ask for before they find the one document that there is.
PROBES = (
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/mcp",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/oauth-protected-resource/elsewhere",
    "/mcp/.well-known/openid-configuration",
    "/mcp/.well-known/oauth-authorization-server",
)


class Heard(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def curl(*arguments: str) -> Heard:
    done = subprocess.run(
        ("curl", "--silent", "--show-error", "--noproxy", "*", "--include", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    status, *lines = head.split("\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Heard(int(status.split()[1]), headers, body)


def post_form(url: str, **fields: str) -> Heard:
    return curl(url, *(part for name, value in fields.items() for part in ("--data-urlencode", f"{name}={value}")))  # fmt: skip


def post_call(url: str, token: str | None) -> Heard:
    bearer = () if token is None else ("--header", f"Authorization: Bearer {token}")
    return curl(
        url,
        "--header", "Content-Type: application/json",
        "--header", "Accept: application/json, text/event-stream",
        "--data", json.dumps(CALL),
        *bearer,
    )  # fmt: skip


def challenge_of(heard: Heard) -> dict[str, str]:
    scheme, _, parameters = heard.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', parameters))


def test_the_challenge_leads_by_curl_alone_to_a_login_and_a_tools_answer(house: House) -> None:
    refused = post_call(house.server.endpoint, token=None)
    assert refused.status == 401
    challenge = challenge_of(refused)
    assert "error" not in challenge  # RFC 6750 §3.1: nothing was wrong with a token that was not sent

    resource = curl(challenge["resource_metadata"]).json
    assert resource["resource"] == house.server.endpoint
    (issuer,) = resource["authorization_servers"]
    server = curl(f"{issuer}/.well-known/oauth-authorization-server").json
    assert server["issuer"] == issuer
    assert DEVICE_CODE in server["grant_types_supported"]
    assert curl(server["jwks_uri"]).json["keys"]

    codes = post_form(
        server["device_authorization_endpoint"],
        client_id="ostiary-cli",
        scope=challenge["scope"],
        resource=resource["resource"],
    ).json
    redeem = {"grant_type": DEVICE_CODE, "device_code": codes["device_code"], "client_id": "ostiary-cli"}
    waiting = post_form(server["token_endpoint"], **redeem)
    assert (waiting.status, waiting.json["error"]) == (400, "authorization_pending")

    house.program.at_machine("approve", codes["user_code"], "--yes")
    issued = post_form(server["token_endpoint"], **redeem)
    assert issued.status == 200
    assert issued.headers["cache-control"] == "no-store"
    tokens = issued.json
    assert tokens["token_type"] == "Bearer"
    assert tokens["scope"] == challenge["scope"]

    answered = post_call(resource["resource"], tokens["access_token"])
    assert answered.status == 200
    assert answered.json["result"]["content"] == [{"type": "text", "text": "by hand"}]

    refresh = {"grant_type": "refresh_token", "client_id": "ostiary-cli"}
    renewed = post_form(server["token_endpoint"], refresh_token=tokens["refresh_token"], **refresh).json
    assert post_call(resource["resource"], renewed["access_token"]).status == 200

    ended = post_form(server["revocation_endpoint"], token=renewed["refresh_token"], client_id="ostiary-cli")
    assert ended.status == 200
    late = post_call(resource["resource"], renewed["access_token"])
    assert late.status == 401
    assert challenge_of(late)["error"] == "invalid_token"


@pytest.mark.parametrize("verb", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_every_verb_without_a_token_is_told_where_to_get_one(house: House, verb: str, path: str) -> None:
    chosen = ("--head",) if verb == "HEAD" else ("--request", verb)
    heard = curl(house.server.url + path, *chosen)
    assert heard.status == 401
    metadata = challenge_of(heard)["resource_metadata"]
    assert metadata == f"{house.server.url}/.well-known/oauth-protected-resource{path}"
    # Clients compare the document's word for the resource with what was typed, slash and all.
    assert curl(metadata).json["resource"] == house.server.url + path


def test_a_preflight_is_answered_without_a_token(house: House) -> None:
    heard = curl(house.server.endpoint, "--request", "OPTIONS")
    assert heard.status == 204
    assert "www-authenticate" not in heard.headers


@pytest.mark.parametrize("verb", ["GET", "HEAD"])
@pytest.mark.parametrize("path", PROBES)
def test_a_document_that_is_not_published_is_a_clean_404(house: House, path: str, verb: str) -> None:
    heard = curl(house.server.url + path, *(("--head",) if verb == "HEAD" else ()))
    assert heard.status == 404
    # Neither a page nor a challenge nor a cookie: each of them has stopped some client's login.
    assert heard.headers["content-type"] == "application/json"
    assert {"www-authenticate", "set-cookie", "location"}.isdisjoint(heard.headers)
    if verb == "GET":
        assert heard.json["error"] == "not_found"


def test_registration_that_is_switched_off_is_refused_in_words_to_those_who_try_it_anyway(
    program: Program,
) -> None:
    with program.serving("--registration", "off") as server:
        heard = curl(f"{server.url}/register", "--header", "Content-Type: application/json", "--data", "{}")
        assert (heard.status, heard.json["error"]) == (403, "access_denied")
        assert heard.headers["content-type"] == "application/json"
        published = curl(f"{server.url}/.well-known/oauth-authorization-server").json
        assert "registration_endpoint" not in published
