"""The start-up self-test (auth/self_test.py): silent on what is right, and it names what is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from auth import self_test
from auth.endpoints import server_metadata
from auth.keys import key_rotation
from auth.keys import signing_keys as keys
from auth.keys.signing_keys import SigningKeys
from auth.values import endpoint_paths
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy, RegistrationPolicy
from tests.auth.identity_fakes import ORIGIN, SITE, START, open_identity, subkey

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp", "b": "/b/mcp"})


@pytest.mark.parametrize(
    ("site", "policy"),
    [
        (SITE, Policy()),
        (PUBLIC, Policy()),
        (replace(PUBLIC, without_login=frozenset({"b"})), Policy()),
        (SITE, Policy(registration=RegistrationPolicy(mode="off", documents="off"))),
    ],
)
async def test_what_is_announced_is_what_there_is(site: Site, policy: Policy) -> None:
    async with open_identity(site=site, policy=policy) as identity:
        assert self_test.examine(identity.parts) == ()


def told(change: Callable[[str, dict[str, Any]], object]) -> self_test.Publish:
    """The documents with a lie in them."""

    def publish(site: Site, policy: Policy, path: str, origin: str) -> dict[str, Any] | None:
        found = server_metadata.document(site, policy, path, origin)
        if found is not None:
            change(path, found)
        return found

    return publish


def on_server(**changes: Any) -> self_test.Publish:
    return told(
        lambda path, found: found.update(changes) if path == endpoint_paths.AUTHORIZATION_SERVER else None
    )


def on_resource(**changes: Any) -> self_test.Publish:
    return told(lambda path, found: found.update(changes) if "resource" in found else None)


@pytest.mark.parametrize(
    ("publish", "words"),
    [
        (lambda *_: None, "not published"),
        (on_server(issuer=ORIGIN + "/"), "the issuer is"),
        (on_server(issuer="https://evil.example"), "the issuer is"),
        (on_server(token_endpoint=ORIGIN + "/tokens"), "token_endpoint is announced at /tokens, where nothing"),
        (on_server(token_endpoint="https://evil.example/token"), "not under the issuer"),
        (on_server(jwks_uri=ORIGIN + "/keys"), "jwks_uri is announced at /keys"),
        (on_server(userinfo_endpoint=ORIGIN + "/userinfo"), "userinfo_endpoint is announced"),
        (on_server(grant_types_supported=["password"]), "the grant types"),
        (on_server(grant_types_supported=[]), "the grant types"),
        (on_server(code_challenge_methods_supported=["S256", "plain"]), "code challenge"),
        (on_server(token_endpoint_auth_methods_supported=["none", "tls_client_auth"]), "no client is let in"),
        (on_server(introspection_endpoint_auth_methods_supported=["none"]), "prove nothing"),
        (on_server(scopes_supported=["mcp", "mcp:unheard-of"]), "cannot be granted"),
        (on_server(scopes_supported=[]), "lists a scope that"),
        (on_resource(resource=ORIGIN + "/other"), "names the resource"),
        (on_resource(resource=ORIGIN + "/mcp/"), "names the resource"),
        (on_resource(authorization_servers=[ORIGIN + "/"]), "another authorization server"),
        (on_resource(authorization_servers=[]), "another authorization server"),
    ],
)  # fmt: skip
async def test_a_promise_that_is_not_kept_is_named(publish: self_test.Publish, words: str) -> None:
    async with open_identity() as identity:
        problems = self_test.examine(identity.parts, publish)
        assert any(words in problem for problem in problems), problems


async def test_a_server_without_login_must_not_say_that_it_has_one() -> None:
    site = replace(SITE, without_login=frozenset({"other"}))
    async with open_identity(site=site) as identity:
        lie = partial(server_metadata.document, SITE)
        assert any(
            "asks nobody" in problem
            for problem in self_test.examine(identity.parts, lambda site, *rest: lie(*rest))
        )


async def test_a_private_member_in_the_key_set_is_named_and_not_shown() -> None:
    async with open_identity() as identity:
        key = identity.parts.keys.ring.signing(START)
        identity.parts.keys.ring = SigningKeys(
            [dataclasses.replace(key, public={**key.public, "d": "the-private-part"})]
        )
        (problem,) = self_test.examine(identity.parts)
        assert "has d, which is not public" in problem
        assert "the-private-part" not in problem


async def test_a_ring_that_signs_with_one_key_and_publishes_another_is_named() -> None:
    async with open_identity() as identity:
        key = identity.parts.keys.ring.signing(START)
        spare = key_rotation.prepare(
            subkey, identity.parts.entropy, identity.parts.policy.tokens, START
        ).signing
        row = {name: getattr(spare, name) for name in spare.__slots__}
        other = keys.unseal(row, subkey(keys.SEAL_PURPOSE))
        identity.parts.keys.ring = SigningKeys([dataclasses.replace(key, public=other.public)])
        assert any("is not published" in problem for problem in self_test.examine(identity.parts))
        identity.parts.keys.ring = SigningKeys([])
        assert any("no key that signs" in problem for problem in self_test.examine(identity.parts))
        four = [dataclasses.replace(key, kid=f"k{number}") for number in range(4)]
        identity.parts.keys.ring = SigningKeys(four)
        problems = self_test.examine(identity.parts)
        assert any("4 signing keys" in problem for problem in problems)
        assert any("one kid" in problem for problem in problems)
