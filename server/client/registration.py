"""The client that we are at an authorization server, found in this order: named on the command line, registered before, built in
there, or registered now by dynamic registration (RFC 7591).

A client with a metadata document needs a public address of its own, and a program in a terminal has none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import trio

from server.client.client_errors import LoginError
from server.client.discovery import Place
from server.client.login_ways import Way
from server.client.oauth_exchange import REGISTER_BY_HAND, asking, oauth_trouble
from server.client.token_file import Millis, StoredRegistration, TokenFile
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.client_identity import BUILT_IN, METHODS, NONE, ClientIdentity, method_for
from server.lib.oauth_client.dynamic_registration import register
from server.lib.oauth_client.issuer_metadata import ServerMetadata
from server.lib.oauth_client.token_requests import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN

CLIENT_NAME: Final = "Ostiary in a terminal"
SOFTWARE_ID: Final = "ostiary-cli"
GRANTS: Final = {"device": DEVICE_CODE, "browser": AUTHORIZATION_CODE}


class KnownIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A client identity that needs no registration now, and the redirect address it is bound to, if any."""

    identity: ClientIdentity
    redirect_uri: str | None = None
    registered: bool = False  # by ourselves: if it is not known any more, it can be made again


async def recall(
    file: TokenFile, place: Place, way: Way, *, given: ClientIdentity | None, now: Millis
) -> KnownIdentity | None:
    """Return the client identity that we have at the server already, or None if we must register.

    Raise `LoginError` if we have none and cannot register.
    """
    server = place.server
    if given is not None:
        method = method_for(server.auth_methods, secret=given.secret is not None)
        return KnownIdentity(identity=msgspec.structs.replace(given, method=method))
    made = await trio.to_thread.run_sync(file.registration, server.issuer, GRANTS[way])
    if made is not None and (made.expires_at is None or now < made.expires_at):
        return KnownIdentity(identity=made.identity, redirect_uri=made.redirect_uri, registered=True)
    if server.built_in_client is not None:
        return KnownIdentity(identity=ClientIdentity(client_id=server.built_in_client))
    if server.registration_endpoint is not None:
        return None
    if way == "device":
        # Perhaps an ostiary from before it said so.
        return KnownIdentity(identity=ClientIdentity(client_id=BUILT_IN))
    raise LoginError(
        f"{host_of(server.issuer)} lets no program register itself",
        hint=REGISTER_BY_HAND,
    )


async def introduce(
    client: HttpClient,
    file: TokenFile,
    place: Place,
    way: Way,
    *,
    redirect_uri: str | None,
    scope: str,
) -> ClientIdentity:
    """Register as a client, and store the registration. Raise `LoginError`, `BadAnswer`, `Unreachable` or `TokenFileError`."""
    endpoint = place.server.registration_endpoint
    assert endpoint is not None
    wanted = _wanted(place.server, way)
    with oauth_trouble(endpoint):
        made = await register(asking(client), place.server, wanted, redirect_uri=redirect_uri, scope=scope)
    kept = StoredRegistration(grant_type=GRANTS[way], **msgspec.structs.asdict(made))
    await trio.to_thread.run_sync(file.put_registration, kept)
    return made.identity


def _wanted(server: ServerMetadata, way: Way) -> dict[str, Any]:
    grants = [GRANTS[way]]
    if REFRESH_TOKEN in server.grant_types or not server.grant_types:
        grants.append(REFRESH_TOKEN)
    return {
        "client_name": CLIENT_NAME,
        "grant_types": grants,
        "token_endpoint_auth_method": next((each for each in METHODS if each in server.auth_methods), NONE),
        "application_type": "native",
        "software_id": SOFTWARE_ID,
    }
