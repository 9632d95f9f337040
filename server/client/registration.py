"""The client that we are at an authorization server, found in this order: named on the command line, registered before, built in
there, or registered now by dynamic registration (RFC 7591).

A client with a metadata document needs a public address of its own, and a program in a terminal has none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import trio

from server import __version__
from server.client.client_errors import BadAnswer, LoginError
from server.client.client_identity import BUILT_IN, METHODS, NONE, ClientIdentity, method_for
from server.client.discovery import Place
from server.client.http_exchange import exchange, host_of
from server.client.login_ways import Way
from server.client.token_file import Millis, StoredRegistration, TokenFile
from server.client.token_requests import (
    AUTHORIZATION_CODE,
    DEVICE_CODE_GRANT,
    REFRESH_TOKEN,
    number,
    read_refusal,
)
from server.lib.http_client.http_client import HttpClient
from server.settings.secret_reference import Secret

CLIENT_NAME: Final = "Ostiary in a terminal"
SOFTWARE_ID: Final = "ostiary-cli"
GRANTS: Final = {"device": DEVICE_CODE_GRANT, "browser": AUTHORIZATION_CODE}
MAX_CREDENTIAL: Final = 4096


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
        hint="register a client there by hand, and pass its id: --client-id",
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
    wanted = _wanted(place, way, redirect_uri=redirect_uri, scope=scope)
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    answer = await exchange(client, "POST", endpoint, content=msgspec.json.encode(wanted), headers=headers)
    if answer.status not in (200, 201):
        refusal = read_refusal(answer, endpoint)
        said = f": {refusal.description}" if refusal.description else ""
        raise LoginError(
            f"{host_of(endpoint)} does not register this program ({refusal.error}){said}",
            hint="register a client there by hand, and pass its id: --client-id",
        )
    made = _read(answer.json_object() or {}, place, way, redirect_uri=redirect_uri, endpoint=endpoint)
    await trio.to_thread.run_sync(file.put_registration, made)
    return made.identity


def _wanted(place: Place, way: Way, *, redirect_uri: str | None, scope: str) -> dict[str, Any]:
    grants = [GRANTS[way]]
    if REFRESH_TOKEN in place.server.grant_types or not place.server.grant_types:
        grants.append(REFRESH_TOKEN)
    offered = place.server.auth_methods
    method = next((each for each in METHODS if each in offered), NONE)
    wanted: dict[str, Any] = {
        "client_name": CLIENT_NAME,
        "grant_types": grants,
        "response_types": [] if redirect_uri is None else ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
        "software_id": SOFTWARE_ID,
        "software_version": __version__,
    }
    if redirect_uri is not None:
        wanted["redirect_uris"] = [redirect_uri]
    if scope:
        wanted["scope"] = scope
    return wanted


def _read(
    body: dict[str, Any], place: Place, way: Way, *, redirect_uri: str | None, endpoint: str
) -> StoredRegistration:
    """Read the answer to a registration (RFC 7591 §3.2.1). Raise `BadAnswer` if we cannot use the client that it describes.

    The server may have registered something else than was asked for; what it answers counts.
    """
    client_id, secret = _credential(body.get("client_id")), _credential(body.get("client_secret"))
    method = body.get("token_endpoint_auth_method")
    if method is None:
        # Left out: what was asked for, or the default of §2 where a secret came along.
        method = NONE if secret is None else method_for(place.server.auth_methods, secret=True)
    if client_id is None or method not in METHODS or (method != NONE and secret is None):
        raise BadAnswer(f"{host_of(endpoint)} registered this program in a way that it cannot use")
    # Never read as a time in the past: zero says that it does not end.
    ends = number(body.get("client_secret_expires_at")) if secret is not None else None
    return StoredRegistration(
        issuer=place.server.issuer,
        grant_type=GRANTS[way],
        client_id=client_id,
        client_secret=Secret(secret) if secret is not None and method != NONE else None,
        auth_method=str(method),
        redirect_uri=redirect_uri,
        expires_at=None if ends is None else int(ends * 1000),
    )


def _credential(value: Any) -> str | None:
    # RFC 6749 appendix A.1, A.2: visible ASCII and blanks.
    if isinstance(value, str) and 0 < len(value) <= MAX_CREDENTIAL and all(" " <= c <= "~" for c in value):
        return value
    return None
