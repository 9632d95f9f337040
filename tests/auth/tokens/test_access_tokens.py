"""Access tokens: what is in them, and everything that is not one (RFC 9068)."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

from auth.client_authentication.dpop_proofs import ProofNonces
from auth.identity import Identity
from auth.jose import es256 as signatures
from auth.tokens import access_tokens as tokens
from auth.tokens.accepted_credentials import ATTEMPTS
from auth.tokens.access_token_verifier import BadToken, TokenVerifier, read
from auth.tokens.live_logins import LiveLogins, read_live
from auth.tokens.presented_credentials import PresentedCredential, present
from auth.tokens.www_authenticate import BearerRefusal, challenge
from auth.values.database import ChangedWhileRead
from auth.values.identity_model import Principal, PrincipalKind
from auth.values.issuer_and_resources import Site
from tests.auth.identity_fakes import (
    MINUTE,
    ORIGIN,
    POLICY,
    SECOND,
    SITE,
    START,
    Clock,
    World,
    b64,
    get,
    logged_in,
    open_identity,
    post,
    seeds,
)
from tests.auth.token_fakes import (
    ISSUE,
    KEY,
    NOW,
    RING,
    SECONDS,
    claims,
    head,
    make_key,
    mint,
    parts_of,
    signed,
)
from tests.sealing import by_hand


def test_a_token_says_exactly_this() -> None:
    head, claims = parts_of(mint())
    assert head == {"alg": "ES256", "kid": KEY.kid, "typ": "at+jwt"}
    assert claims.pop("jti").startswith("at_")
    assert claims == {
        "iss": ORIGIN,
        "sub": "usr_1",
        "aud": ORIGIN + "/mcp",
        "client_id": "cli_1",
        "scope": "mcp",
        "iat": SECONDS,
        "exp": SECONDS + 3_600,
        "sid": "grt_1",
        "auth_time": SECONDS - 60,
    }


def test_a_token_never_outlives_its_login() -> None:
    ending = replace(ISSUE, ends_at=START + 5 * MINUTE)
    token, lives = tokens.mint(ending, site=SITE, policy=POLICY.tokens, key=KEY, seed=b"s" * 32)
    assert lives == 300
    assert parts_of(token)[1]["exp"] == SECONDS + 300


def test_no_token_is_made_for_a_server_that_is_not_there() -> None:
    with pytest.raises(LookupError):
        mint(replace(ISSUE, server="gone"))


def test_lifetimes_under_ten_minutes_are_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ValueError, match="10 minutes"):
        replace(POLICY.tokens, access_ms=9 * MINUTE)
    with pytest.raises(ValueError, match="replay window"):
        replace(POLICY.tokens, replay_window_ms=11 * MINUTE)


# ---------------------------------------------------------------- the corpus


def hs_with_pem() -> str:
    """The classic: the public key, which everybody has, as the secret of a MAC."""
    pem = KEY.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    body = f"{b64(head(alg='HS256').encode())}.{b64(claims().encode())}"
    return f"{body}.{b64(hmac.digest(pem, body.encode(), 'sha256'))}"


def unsigned(alg: str) -> str:
    return f"{b64(head(alg=alg).encode())}.{b64(claims().encode())}."


@pytest.mark.requirement("auth.audience")
@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "not a compact"),
        ("abc", "not a compact"),
        ("a.b", "not a compact"),
        ("a.b.c.d", "not a compact"),
        ("é.b.c", "not a compact"),
        ("a.b.c ", "not a compact"),
        ("a.b.c", "unreadable"),
        (f"{b64(b'[]')}.{b64(b'{}')}.c", "unreadable"),
        (f"{b64(b'[' * 4_000)}.{b64(b'{}')}.c", "unreadable"),
        ("x" * 9 * 1_024, "too long"),
        (signed(payload=claims(pad="x" * 9 * 1_024)), "too long"),
        (unsigned("none"), "not a compact"),
        (unsigned("none") + "AA", "another algorithm"),
        (hs_with_pem(), "another algorithm"),
        (signed(head(alg="ES384")), "another algorithm"),
        (signed(head(alg=None)), "another algorithm"),
        (signed(head(kid="unknown")), "unknown kid"),
        (signed(head(kid=None)), "kid is not a text"),
        (signed(head(kid=7)), "kid is not a text"),
        (signed(head(typ=None)), "typ is not a text"),
        (signed(head(typ="JWT")), "not an access token"),
        (signed(head(typ="dpop+jwt")), "not an access token"),
        (signed(head(crit=["exp"])), "critical"),
        (signed(head(crit=[])), "critical"),
        (signed(head(b64=False, crit=["b64"])), "critical"),
        (signed(head()[:-1] + ', "alg": "ES256"}'), "a member twice"),
        (signed(payload=claims()[:-1] + ', "aud": "https://evil.example"}'), "a member twice"),
        (signed(payload=claims(iss="https://evil.example")), "another issuer"),
        (signed(payload=claims(iss=ORIGIN + "/")), "another issuer"),
        (signed(payload=claims(iss=None)), "another issuer"),
        (signed(payload=claims(aud=[ORIGIN + "/mcp"])), "aud is not a text"),
        (signed(payload=claims(aud=None)), "aud is not a text"),
        (signed(payload=claims(sid=None)), "sid is not a text"),
        (signed(payload=claims(sub="")), "sub is not a text"),
        (signed(payload=claims(scope=["mcp"])), "scope is not a text"),
        (signed(payload=claims(client_id=1)), "client_id is not a text"),
        (signed(payload=claims(exp=None)), "exp is not a whole number"),
        (signed(payload=claims(exp="9999999999")), "exp is not a whole number"),
        (signed(payload=claims(exp=True)), "exp is not a whole number"),
        (signed(payload=claims(exp=1e300)), "exp is not a whole number"),
        (signed(payload=claims(iat=None)), "iat is not a whole number"),
        (signed(payload=claims(exp=SECONDS - 30)), "expired"),
        (signed(payload=claims(iat=SECONDS + 61)), "in the future"),
        (signed(key=make_key(2)), "bad signature"),
        (signed(head(jwk=make_key(2).public), key=make_key(2)), "bad signature"),
        (signed()[:-4] + "AAAA", "bad signature"),
        (signed(payload="[]"), "unreadable"),
        (signed(payload='{"iss":'), "unreadable"),
    ],
)
def test_what_is_not_our_token_is_refused(token: str, why: str) -> None:
    with pytest.raises(BadToken, match=why):
        read(token, ORIGIN, RING, NOW)


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(head(typ="application/at+jwt")),
        signed(head(typ="AT+JWT")),
        signed(head(jku="https://evil.example/jwks", x5u="https://evil.example")),
        signed(payload=claims(exp=SECONDS - 29)),
        signed(payload=claims(iat=SECONDS + 60)),
        signed(payload=claims(extra={"a": 1})),
    ],
)
def test_the_edges_of_what_is_accepted(token: str) -> None:
    assert read(token, ORIGIN, RING, NOW).grant_id == "grt_1"


def test_an_expired_token_can_still_be_revoked() -> None:
    old = signed(payload=claims(exp=SECONDS - 9_999))
    assert read(old, ORIGIN, RING, NOW, expired_too=True).grant_id == "grt_1"


def test_no_private_key_shows_in_public_or_in_a_repr() -> None:
    assert "d" not in KEY.public
    assert "PRIVATE" not in repr(KEY)
    assert signatures.private_jwk(KEY.key)["d"] not in repr(RING) + repr(KEY)


# ---------------------------------------------------------------- the whole check


async def checked(identity: Identity, authorization: str | None, **fields: Any) -> Principal | BearerRefusal:
    where: dict[str, Any] = {"server": "agent", "origin": ORIGIN, **fields}
    return await identity.check(present(authorization, **where))


async def test_a_live_token_is_its_principal_and_the_second_time_without_waiting() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        where: dict[str, Any] = {"server": "agent", "origin": ORIGIN}
        assert identity.check_nowait(present(f"Bearer {token}", **where)) is None
        principal = await checked(identity, f"Bearer {token}")
        assert isinstance(principal, Principal)
        assert principal.kind is PrincipalKind.USER
        assert principal.scopes == {"mcp", "mcp:tools", "mcp:resources"}
        assert identity.check_nowait(present(f"bearer  {token}", **where)) == principal


@pytest.mark.requirement("auth.audience")
async def test_a_token_of_one_server_opens_no_other() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        refused = await checked(identity, f"Bearer {token}", server="other")
        assert isinstance(refused, BearerRefusal)
        assert (refused.status, refused.error) == (401, "invalid_token")


async def test_a_token_that_is_remembered_opens_its_own_server_and_still_no_other() -> None:
    async with open_identity() as identity:
        shown = f"Bearer {(await logged_in(identity))['access_token']}"
        for _ in range(2):
            assert isinstance(await checked(identity, shown), Principal)
            assert isinstance(await checked(identity, shown, server="other"), BearerRefusal)


async def test_a_token_of_a_login_that_is_gone_is_asked_for_once_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_identity() as identity:
        loads: list[str] = []

        async def load(grant_id: str) -> None:
            loads.append(grant_id)

        monkeypatch.setattr(identity.live, "_load", load)
        assert isinstance(
            await checked(identity, f"Bearer {(await logged_in(identity))['access_token']}"), BearerRefusal
        )
        assert len(loads) == 1


async def test_while_the_keys_change_faster_than_they_can_be_read_nobody_comes_in_or_is_refused() -> None:
    async with open_identity() as identity:
        shown = f"Bearer {(await logged_in(identity))['access_token']}"
        assert isinstance(await checked(identity, shown), Principal)
        keys = identity.parts.keys
        reads: list[int] = []

        async def restless() -> None:
            reads.append(1)
            keys.changed()

        identity.verifier._reload_keys = restless
        keys.changed()
        with pytest.raises(ChangedWhileRead):
            await checked(identity, shown)
        assert len(reads) == ATTEMPTS
        identity.verifier._reload_keys = identity.parts.reload_keys
        assert isinstance(await checked(identity, shown), Principal)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE grants SET revoked_at = 1",
        "UPDATE users SET state = 'disabled'",
        "UPDATE users SET state = 'locked'",
        "UPDATE clients SET state = 'disabled'",
    ],
)
async def test_a_revocation_counts_from_its_commit_on(sql: str) -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        principal = await checked(identity, f"Bearer {token}")
        assert isinstance(principal, Principal)
        kind = sql.split()[1].removesuffix("s")
        entity = {"grant": principal.grant_id, "user": principal.subject, "client": principal.client_id}[kind]
        assert entity is not None

        def change(db: Any) -> None:
            db.execute(sql)
            db.changed(kind, entity)

        await identity.parts.store.write(change)
        where: dict[str, Any] = {"server": "agent", "origin": ORIGIN}
        assert identity.check_nowait(present(f"Bearer {token}", **where)) is None
        assert isinstance(await checked(identity, f"Bearer {token}"), BearerRefusal)


async def test_a_login_ends_at_its_absolute_end_though_its_token_is_remembered() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        token = (await logged_in(identity))["access_token"]
        assert isinstance(await checked(identity, f"Bearer {token}"), Principal)

        def cut(db: Any) -> None:
            by_hand("UPDATE grants SET expires_at = ?", clock.now + SECOND)(db)
            db.changed("grant", db.fetch_one("SELECT id FROM grants")["id"])

        await identity.parts.store.write(cut)
        assert isinstance(await checked(identity, f"Bearer {token}"), Principal)
        clock.now += SECOND
        assert isinstance(
            identity.check_nowait(present(f"Bearer {token}", server="agent", origin=ORIGIN)), BearerRefusal
        )


async def test_a_remembered_token_is_forgotten_when_it_expires() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        token = (await logged_in(identity))["access_token"]
        for later in (3_599, 30, 1):
            clock.now += later * SECOND
            answer = await checked(identity, f"Bearer {token}")
            assert isinstance(answer, Principal) == (clock.now < START + 3_630 * SECOND)


async def test_lowering_a_users_ceiling_lowers_what_old_tokens_may_do() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        await identity.parts.store.write(by_hand("UPDATE users SET scope = 'mcp:tools'"))
        principal = await checked(identity, f"Bearer {token}")
        assert isinstance(principal, Principal)
        assert principal.scopes == {"mcp:tools"}


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE grants SET revoked_at = 1",
        "UPDATE users SET state = 'disabled'",
        "UPDATE clients SET state = 'disabled'",
        "DELETE FROM grants",
    ],
)
async def test_work_that_outlives_its_request_may_go_on_until_its_login_is_ended(sql: str) -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        principal = await checked(identity, f"Bearer {(await logged_in(identity))['access_token']}")
        assert isinstance(principal, Principal)
        still = identity.verifier.still
        assert await still(principal) == principal
        clock.now += 400 * 24 * 60 * MINUTE  # a login that ran out by itself was not ended
        assert await still(principal) == principal

        def change(db: Any) -> None:
            db.execute(sql)
            for kind, entity in (
                ("grant", principal.grant_id),
                ("user", principal.subject),
                ("client", principal.client_id),
            ):
                db.changed(kind, entity)

        await identity.parts.store.write(change)
        assert await still(principal) is None


async def test_work_that_outlives_its_request_may_do_what_its_user_may_now() -> None:
    async with open_identity() as identity:
        principal = await checked(identity, f"Bearer {(await logged_in(identity))['access_token']}")
        assert isinstance(principal, Principal)

        def lower(db: Any) -> None:
            by_hand("UPDATE users SET scope = 'mcp:tools'")(db)
            db.changed("user", principal.subject)

        await identity.parts.store.write(lower)
        assert await identity.verifier.still(principal) == replace(
            principal, scopes=frozenset({"mcp:tools"}), reach=frozenset({"mcp:tools"})
        )
        assert await identity.verifier.still(replace(principal, subject="usr_other")) is None
        nobody = Principal(kind=PrincipalKind.ANONYMOUS, subject="anonymous")
        assert await identity.verifier.still(nobody) == nobody


async def test_a_restored_store_lets_no_earlier_token_in() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        await identity.parts.store.write(
            lambda db: db.execute("UPDATE meta SET value = 'x' WHERE key = 'refresh_epoch'")
        )
        assert isinstance(await checked(identity, f"Bearer {token}"), BearerRefusal)


@pytest.mark.requirement("auth.challenge")
@pytest.mark.parametrize(
    ("authorization", "error"),
    [
        (None, None),
        ("", None),
        ("Digest username=foo", None),
        ("Basic Zm9vOmJhcg==", "invalid_token"),
        ("Basic nonsense", "invalid_token"),
        ("Bearer", "invalid_token"),
        ("Bearer x", "invalid_token"),
        ("Bearer x, Bearer y", "invalid_token"),
        ("Bearer \udc80", "invalid_token"),
        ("Bearer " + "x" * 60_000, "invalid_token"),
        ("BEARER a.b.c", "invalid_token"),
    ],
)
async def test_the_challenge_has_an_error_only_if_a_token_was_sent(
    authorization: str | None, error: str | None
) -> None:
    async with open_identity() as identity:
        for answer in (
            identity.check_nowait(present(authorization, server="agent", origin="http://localhost:9000")),
            await checked(identity, authorization, origin="http://localhost:9000"),
        ):
            assert isinstance(answer, BearerRefusal)
            assert (answer.status, answer.error) == (401, error)
            expected = (
                'Bearer resource_metadata="http://localhost:9000/.well-known/oauth-protected-resource/mcp",'
                ' scope="mcp"'
            )
            assert answer.www_authenticate.startswith(expected)
            assert ("error=" in answer.www_authenticate) == (error is not None)


def test_a_challenge_repeats_the_typed_path_and_off_loopback_the_configured_name() -> None:
    site = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp", "b": "/b/mcp"})
    typed = challenge(site, present(None, server="agent", origin="http://10.0.0.1", path="/mcp/"))
    assert '"https://agent.example/.well-known/oauth-protected-resource/mcp/"' in typed.www_authenticate
    strange = challenge(site, present(None, server="b", origin="x", path='/mcp"evil'))
    assert '"https://agent.example/.well-known/oauth-protected-resource/b/mcp"' in strange.www_authenticate


@pytest.mark.requirement("auth.scopes")
def test_insufficient_scope_names_all_scopes_that_are_needed() -> None:
    refused = challenge(
        SITE,
        present(None, server="agent", origin=ORIGIN),
        error="insufficient_scope",
        description="the login does not cover this",
        needed=("mcp:tools", "mcp:resources"),
        status=403,
    )
    assert refused.status == 403
    assert refused.www_authenticate == (
        f'Bearer resource_metadata="{ORIGIN}/.well-known/oauth-protected-resource/mcp",'
        ' scope="mcp:tools mcp:resources", error="insufficient_scope",'
        ' error_description="the login does not cover this"'
    )


async def test_remembered_tokens_are_bounded_and_the_oldest_goes_first() -> None:
    world = World()
    issue = world.login()

    async def load(grant_id: str) -> Any:
        return read_live(world.db, grant_id)

    async def reload() -> None:
        raise AssertionError("the keys are not stale")

    verifier = TokenVerifier(
        site=SITE,
        keys=RING,
        live=LiveLogins(load),
        reload_keys=reload,
        nonces=ProofNonces(bytes(32), 0),
        remembered=2,
    )
    draw = seeds()
    for _ in range(3):
        token, _ = tokens.mint(issue, site=SITE, policy=POLICY.tokens, key=KEY, seed=draw(32))
        shown = present(f"Bearer {token}", server="agent", origin=ORIGIN)
        assert isinstance(shown.credential, PresentedCredential)
        assert await verifier.reload(shown.credential, START)
        assert isinstance(verifier.check_nowait(shown, shown.credential, START), Principal)
    assert len(verifier._tokens) == 2
    world.close()


@pytest.mark.requirement("auth.no-query")
async def test_a_token_in_the_query_or_the_form_is_not_looked_at() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        reply = await identity.handle(post("/revoke", access_token=token))
        assert reply is not None
        assert reply.status == 400
        assert await identity.handle(get("/mcp")) is None
