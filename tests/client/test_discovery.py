from __future__ import annotations

from typing import Any

import pytest
from fake_server import FakeServer, Response, Seen, as_json

from server.client.client_errors import BadAnswer, ClientError, DiscoveryError, Unreachable
from server.client.discovery import OpenServer, discover
from server.client.http_exchange import MAX_DOCUMENT
from server.lib.http_client.http_client import HttpClient

pytestmark = pytest.mark.usefixtures("in_time")

PRM_PATH = "/.well-known/oauth-protected-resource/mcp"
PRM_ROOT = "/.well-known/oauth-protected-resource"
AS_PATH = "/.well-known/oauth-authorization-server"


def answering(response: Response) -> Any:
    async def handler(request: Seen) -> Response:
        return response

    return handler


def challenging(header: str) -> Any:
    return answering(as_json({}, 401, WWW_Authenticate=header))


async def test_the_challenge_leads_to_the_endpoints(fake: FakeServer, client: HttpClient) -> None:
    place = await discover(client, fake.url)
    assert place.resource == fake.url
    assert place.scope == "mcp"
    assert place.server.issuer == fake.origin
    assert place.server.token_endpoint == f"{fake.origin}/token"
    assert place.server.device_login
    assert [request.path for request in fake.seen] == ["/mcp", PRM_PATH, AS_PATH]
    assert all("authorization" not in request.headers for request in fake.seen)


async def test_the_scope_of_the_challenge_is_preferred_to_what_the_resource_lists(
    fake: FakeServer, client: HttpClient
) -> None:
    fake.overrides["/mcp"] = challenging(f'Bearer resource_metadata="{fake.origin}{PRM_PATH}", scope="few"')
    assert (await discover(client, fake.url)).scope == "few"


@pytest.mark.parametrize("where", [PRM_PATH, PRM_ROOT])
async def test_without_a_named_address_the_well_known_places_are_tried_in_order(
    fake: FakeServer, client: HttpClient, where: str
) -> None:
    fake.overrides["/mcp"] = challenging("Bearer")
    fake.overrides[PRM_PATH] = answering(as_json({}, 404))
    fake.overrides[where] = answering(as_json(fake.resource_metadata()))
    assert (await discover(client, fake.url)).resource == fake.url


async def test_a_server_that_challenges_only_a_get_is_understood(
    fake: FakeServer, client: HttpClient
) -> None:
    async def by_method(request: Seen) -> Response:
        return await fake.usual(request) if request.method == "GET" else Response(405)

    fake.overrides["/mcp"] = by_method
    assert (await discover(client, fake.url)).resource == fake.url


async def test_a_server_that_calls_itself_by_a_name_that_leads_nowhere_is_told_with_the_setting(
    fake: FakeServer, client: HttpClient
) -> None:
    fake.overrides["/mcp"] = challenging('Bearer resource_metadata="https://127.0.0.1:1/.well-known/x"')
    with pytest.raises(DiscoveryError, match=r"calls itself https://127\.0\.0\.1:1") as refused:
        await discover(client, fake.url)
    assert "set issuer" in (refused.value.hint or "")


async def test_a_server_without_a_login_is_told_as_such(fake: FakeServer, client: HttpClient) -> None:
    fake.login_needed = False
    with pytest.raises(OpenServer, match="needs no login"):
        await discover(client, fake.url)


async def test_a_server_without_a_login_may_answer_a_get_with_an_endless_stream(
    fake: FakeServer, client: HttpClient
) -> None:
    async def streaming(request: Seen) -> Response:
        if request.method == "GET":
            return Response(
                200, headers={"content-type": "text/event-stream"}, chunks=[b": hello\n\n"], hang=True
            )
        return await fake.usual(request)

    fake.login_needed = False
    fake.overrides["/mcp"] = streaming
    with pytest.raises(OpenServer):
        await discover(client, fake.url)


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (Response(404, b"not here"), "no MCP server at /mcp"),
        (Response(307, headers={"location": "https://elsewhere.example/mcp"}), "redirects"),
        (Response(403), "by this name"),
        (Response(500, b"oops"), "status 500"),
        (Response(200, b"<html>a site</html>"), "no MCP server at /mcp"),
    ],
)
async def test_an_answer_that_is_no_challenge_is_explained(
    fake: FakeServer, client: HttpClient, response: Response, said: str
) -> None:
    fake.overrides["/mcp"] = answering(response)
    with pytest.raises(DiscoveryError, match=said) as refused:
        await discover(client, fake.url)
    assert refused.value.hint
    # A redirect is named to the person, never followed.
    assert {request.path for request in fake.seen} == {"/mcp"}


@pytest.mark.parametrize(
    "resource",
    ["http://127.0.0.1:1/mcp", "https://a.example/mcp", "", None, 5, ["x"]],
)
async def test_a_resource_that_is_not_the_one_typed_is_refused(
    fake: FakeServer, client: HttpClient, resource: object
) -> None:
    fake.overrides[PRM_PATH] = answering(as_json({**fake.resource_metadata(), "resource": resource}))
    with pytest.raises(DiscoveryError, match="calls itself"):
        await discover(client, fake.url)


async def test_a_document_found_at_the_root_may_speak_for_the_whole_origin(
    fake: FakeServer, client: HttpClient
) -> None:
    fake.overrides["/mcp"] = challenging("Bearer")
    fake.overrides[PRM_PATH] = answering(as_json({}, 404))
    fake.overrides[PRM_ROOT] = answering(as_json({**fake.resource_metadata(), "resource": fake.origin}))
    assert (await discover(client, fake.url)).resource == fake.origin


@pytest.mark.parametrize(
    ("where", "named", "resource"),
    [
        (PRM_PATH, "", "{origin}"),
        (PRM_ROOT, f', resource_metadata="{{origin}}{PRM_ROOT}"', "{origin}"),
        (PRM_ROOT, "", "{origin}/other"),
        (PRM_ROOT, "", "https://a.example"),
    ],
)
async def test_no_other_document_may(
    fake: FakeServer, client: HttpClient, where: str, named: str, resource: str
) -> None:
    fake.overrides["/mcp"] = challenging("Bearer realm=x" + named.format(origin=fake.origin))
    fake.overrides[PRM_PATH] = answering(as_json({}, 404))
    document = {**fake.resource_metadata(), "resource": resource.format(origin=fake.origin)}
    fake.overrides[where] = answering(as_json(document))
    with pytest.raises(DiscoveryError, match="calls itself"):
        await discover(client, fake.url)


async def test_a_trailing_slash_in_the_resource_is_forgiven_and_sent_back_as_it_was(
    fake: FakeServer, client: HttpClient
) -> None:
    fake.overrides[PRM_PATH] = answering(as_json({**fake.resource_metadata(), "resource": f"{fake.url}/"}))
    assert (await discover(client, fake.url)).resource == f"{fake.url}/"


async def test_an_issuer_that_differs_by_a_slash_is_refused(fake: FakeServer, client: HttpClient) -> None:
    fake.overrides[AS_PATH] = answering(as_json({**fake.server_metadata(), "issuer": f"{fake.origin}/"}))
    with pytest.raises(DiscoveryError, match="another issuer"):
        await discover(client, fake.url)


@pytest.mark.parametrize("name", ["token_endpoint", "device_authorization_endpoint", "revocation_endpoint"])
@pytest.mark.parametrize("address", ["http://agent.example/x", "javascript:alert(1)", "/relative", 5])
async def test_an_endpoint_that_is_neither_https_nor_this_machine_is_refused(
    fake: FakeServer, client: HttpClient, name: str, address: object
) -> None:
    fake.overrides[AS_PATH] = answering(as_json({**fake.server_metadata(), name: address}))
    with pytest.raises(DiscoveryError, match=name):
        await discover(client, fake.url)


async def test_metadata_at_an_address_off_limits_is_not_fetched(fake: FakeServer, client: HttpClient) -> None:
    fake.overrides["/mcp"] = challenging('Bearer resource_metadata="http://agent.example/prm"')
    with pytest.raises(DiscoveryError, match="must not be followed"):
        await discover(client, fake.url)
    fake.overrides["/mcp"] = challenging("Bearer")
    fake.overrides[PRM_PATH] = answering(
        as_json({**fake.resource_metadata(), "authorization_servers": ["http://agent.example"]})
    )
    with pytest.raises(DiscoveryError, match="must not be followed"):
        await discover(client, fake.url)


async def test_an_issuer_with_a_path_is_looked_up_between_host_and_path(
    fake: FakeServer, client: HttpClient
) -> None:
    issuer = f"{fake.origin}/tenant"
    fake.overrides[PRM_PATH] = answering(
        as_json({**fake.resource_metadata(), "authorization_servers": [issuer]})
    )
    fake.overrides[f"{AS_PATH}/tenant"] = answering(as_json({**fake.server_metadata(), "issuer": issuer}))
    assert (await discover(client, fake.url)).server.issuer == issuer


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (Response(200, b"<html>"), DiscoveryError),
        (Response(200, b"[" * 100_000), DiscoveryError),
        (Response(200, b'"' + b"x" * MAX_DOCUMENT + b'"'), BadAnswer),
        (Response(502), DiscoveryError),
        (Response(302, headers={"location": "https://a.example"}), DiscoveryError),
        (Response(200, b"{}", {"content-encoding": "gzip"}), BadAnswer),
        (Response(break_off=True), Unreachable),
    ],
)
async def test_a_broken_document_ends_discovery_with_one_sentence(
    fake: FakeServer, client: HttpClient, response: Response, error: type[ClientError]
) -> None:
    fake.overrides[PRM_PATH] = answering(response)
    with pytest.raises(error):
        await discover(client, fake.url)


async def test_nobody_listening_is_told_with_a_hint(client: HttpClient) -> None:
    with pytest.raises(Unreachable, match="nothing answers") as refused:
        await discover(client, "http://127.0.0.1:1/mcp")
    assert refused.value.hint is not None
    assert not refused.value.sent
