"""The document that a protected resource publishes about itself (RFC 9728 §3): where it may be, for whom it speaks, and whom the resource trusts."""

from __future__ import annotations

from typing import Final

import msgspec

from server.lib.json_objects import strings
from server.lib.oauth_client.addresses import may_follow, origin, same_resource, well_known
from server.lib.oauth_client.issuer_metadata import first_document
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure

RESOURCE_METADATA: Final = "resource_metadata"
_SUFFIX: Final = "oauth-protected-resource"


class ResourceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata that a resource publishes about itself."""

    found_at: str
    resource: str
    authorization_server: str
    scopes: tuple[str, ...] = ()
    title: str = ""  # what it calls itself (RFC 9728 §2, `resource_name`)


async def find_resource(ask: Ask, url: str, *, named: str | None) -> ResourceMetadata:
    """Return what the resource at `url` says of itself; `named` is where a challenge says that the document is. Raise `OAuthFailure`."""
    places = [well_known(_SUFFIX, url), f"{origin(url)}/.well-known/{_SUFFIX}"]
    if named is not None:
        if not may_follow(named, typed=url):
            raise OAuthFailure(
                "names resource metadata at an address that must not be followed",
                reason="endpoint",
                field=RESOURCE_METADATA,
            )
        places.insert(0, named)
    found_at, document = await first_document(ask, places)
    resource = document.get("resource")
    # RFC 9728 §3.3: a document speaks for what its place was made from, which at the root is the origin; one that the
    # challenge named speaks for the address that was asked.
    from_root = found_at == places[-1] and found_at != named
    expected = (url, origin(url)) if from_root else (url,)
    if not isinstance(resource, str) or not any(same_resource(resource, each) for each in expected):
        said = resource[:300] if isinstance(resource, str) else ""
        raise OAuthFailure("calls itself otherwise", reason="resource", place=found_at, description=said)
    servers = strings(document.get("authorization_servers"))
    if not servers:
        raise OAuthFailure("names no authorization server", reason="no server", place=found_at)
    return ResourceMetadata(
        found_at=found_at,
        resource=resource,
        authorization_server=next((each for each in servers if same_resource(each, origin(url))), servers[0]),
        scopes=strings(document.get("scopes_supported")),
        title=name if isinstance(name := document.get("resource_name"), str) else "",
    )
