"""Redeeming a code: who may, with what, when, and how often (RFC 6749 §4.1.3, RFC 7636 §4.6; T4, T12)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from auth.authorization import pkce
from auth.clients.client_registry import ClientCredentials
from auth.grant_types.authorization_code_grant import redeem_code
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import GrantRequest
from auth.keys.refresh_token_keys import RefreshRing
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Principal
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester
from tests.auth.code_fakes import CALLBACK, CHALLENGE, VERIFIER, Program, body_of, open_porch
from tests.auth.identity_fakes import ORIGIN, POLICY, SECOND, SITE, get


def refusal(reply: WireReply) -> str:
    assert reply.status == 400, reply.body
    return body_of(reply)["error"]


async def test_a_code_gives_a_login_with_what_was_agreed() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser(), scope="mcp:tools"))["code"]
        porch.clock.now += 30 * SECOND
        tokens = body_of(await program.redeem(code))
        assert tokens["scope"] == "mcp:tools"
        bearer = f"Bearer {tokens['access_token']}"
        principal = await porch.identity.check(present(bearer, server="agent", origin=ORIGIN))
        assert isinstance(principal, Principal)
        assert principal.client_id == program.client.id
        assert isinstance(
            await porch.identity.check(present(bearer, server="other", origin=ORIGIN)), BearerRefusal
        )
        (grant,) = await porch.rows("grants")
        assert grant["redirect_host"] == "http://127.0.0.1"
        assert grant["expires_at"] == porch.clock.now + POLICY.tokens.code_login_ms
        assert grant["auth_time"] == porch.clock.now - 30 * SECOND
        again = await porch.post(
            "/token",
            grant_type="refresh_token",
            client_id=program.client.id,
            refresh_token=tokens["refresh_token"],
        )
        assert again.status == 200


async def test_a_client_that_takes_no_refresh_tokens_gets_none() -> None:
    async with open_porch() as porch:
        program = await porch.program(grant_types=("authorization_code",))
        code = (await program.agreed(await porch.browser(), scope="mcp offline_access"))["code"]
        assert "refresh_token" not in body_of(await program.redeem(code))


WRONG: dict[str, tuple[str, dict[str, str | None]]] = {
    "an unknown code": ("invalid_grant", {"code": "x" * 43}),
    "no code": ("invalid_request", {"code": None}),
    "no verifier": ("invalid_request", {"code_verifier": None}),
    "another verifier": ("invalid_grant", {"code_verifier": "w" * 43}),
    "the challenge as verifier": ("invalid_grant", {"code_verifier": CHALLENGE}),
    "a verifier of 42 characters": ("invalid_grant", {"code_verifier": VERIFIER[:42]}),
    "a verifier of 129 characters": ("invalid_grant", {"code_verifier": "v" * 129}),
    "a verifier with a plus": ("invalid_grant", {"code_verifier": "+" + VERIFIER[1:]}),
    "another redirect address": ("invalid_grant", {"redirect_uri": CALLBACK + "/x"}),
    "another loopback port": ("invalid_grant", {"redirect_uri": CALLBACK.replace("33418", "33419")}),
    "another server's resource": ("invalid_target", {"resource": ORIGIN + "/other/mcp"}),
    "a foreign resource": ("invalid_target", {"resource": "https://evil.example/mcp"}),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_exchange_is_refused_and_uses_nothing_up(name: str) -> None:
    error, changes = WRONG[name]
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        changed = {"code": code, **changes}
        reply = await program.porch.post(
            "/token",
            **{
                key: value
                for key, value in {
                    "grant_type": "authorization_code",
                    "client_id": program.client.id,
                    "code_verifier": VERIFIER,
                    "redirect_uri": CALLBACK,
                    **changed,
                }.items()
                if value is not None
            },
        )
        assert refusal(reply) == error
        assert await porch.rows("grants") == []
        assert (await program.redeem(code, resource=ORIGIN + "/mcp/")).status == 200


async def test_a_code_of_another_client_is_refused_and_not_used_up() -> None:
    async with open_porch() as porch:
        program, thief = await porch.program(), await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        assert refusal(await thief.redeem(code)) == "invalid_grant"
        assert (await program.redeem(code)).status == 200


async def test_a_code_lives_sixty_seconds() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        porch.clock.now += 60 * SECOND
        assert refusal(await program.redeem(code)) == "invalid_grant"
        assert (await porch.audited("code.redeemed"))[0][1].endswith("expired")
        code = (await program.agreed(await porch.browser(), prompt="consent"))["code"]
        porch.clock.now += 60 * SECOND - 1
        assert (await program.redeem(code)).status == 200


async def test_a_code_that_comes_twice_ends_the_login_it_made() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        tokens = body_of(await program.redeem(code))
        porch.clock.now += 50 * 60 * SECOND
        assert refusal(await program.redeem(code, code_verifier="w" * 43)) == "invalid_grant"
        bearer = f"Bearer {tokens['access_token']}"
        assert isinstance(
            await porch.identity.check(present(bearer, server="agent", origin=ORIGIN)), BearerRefusal
        )
        refreshed = await porch.post(
            "/token",
            grant_type="refresh_token",
            client_id=program.client.id,
            refresh_token=tokens["refresh_token"],
        )
        assert refusal(refreshed) == "invalid_grant"
        (grant,) = await porch.rows("grants")
        assert grant["revoked_reason"] == "authorization code used again"
        outcomes = await porch.audited("code.redeemed")
        assert [outcome for outcome, _ in outcomes] == ["ok", "refused"]
        assert outcomes[1][1].endswith("code used again")
        assert len(await porch.audited("grant.revoked")) == 1


async def test_whoever_loses_a_race_between_reading_and_writing_gets_nothing() -> None:
    """On an engine with parallel writers the conditional UPDATE is what decides."""

    class Beaten:
        """The store, as a job sees it that another was faster than."""

        def __init__(self, db: Db) -> None:
            self.db = db

        def __getattr__(self, name: str) -> Any:
            return getattr(self.db, name)

        def execute(self, sql: str, *params: object) -> int:
            if sql.startswith("UPDATE authorization_codes"):
                return 0
            return self.db.execute(sql, *params)

    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        form = TokenForm(
            grant_type="authorization_code",
            credentials=ClientCredentials(client_id=None),
            code=code,
            code_verifier=VERIFIER,
            redirect_uri=CALLBACK,
        )
        exchange = GrantRequest(
            form=form,
            requester=Requester.of(get("/token")),
            site=SITE,
            policy=POLICY,
            refresh_keys=RefreshRing(()),
            seed=bytes(32),
            now=porch.clock(),
        )
        outcome = await porch.identity.parts.store.write(
            lambda db: redeem_code(cast("Db", Beaten(db)), program.client, exchange)
        )
        assert isinstance(outcome, OAuthRefusal)
        assert outcome.error == "invalid_grant"
        assert await porch.rows("grants") == []


@pytest.mark.parametrize(
    "alteration", ["subject = 'usr_another'", "scope = 'mcp financial'", "challenge = 'x'"]
)
async def test_a_code_that_somebody_altered_in_the_database_is_worth_nothing(alteration: str) -> None:
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        await porch.parts.store.write(lambda db: db.execute(f"UPDATE authorization_codes SET {alteration}"))
        assert refusal(await program.redeem(code)) == "invalid_grant"
        assert await porch.rows("grants") == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE users SET state = 'disabled'",
        "UPDATE users SET expires_at = 1",
        "UPDATE users SET scope = 'vault'",
        "UPDATE clients SET scope = 'vault'",
        "UPDATE authorization_codes SET server = 'gone'",
    ],
)
async def test_what_changed_since_the_yes_is_looked_at_again(change: str) -> None:
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        await porch.run(change)
        assert refusal(await program.redeem(code)) == "invalid_grant"
        assert await porch.rows("grants") == []


async def test_a_narrower_account_gets_a_narrower_login() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser(), scope="mcp"))["code"]
        await porch.run("UPDATE users SET scope = 'mcp:tools'")
        assert body_of(await program.redeem(code))["scope"] == "mcp:tools"


@pytest.mark.parametrize(
    "change", ["UPDATE clients SET state = 'disabled'", "UPDATE clients SET grant_types = 'refresh_token'"]
)
async def test_a_client_that_may_not_any_more_gets_nothing(change: str) -> None:
    async with open_porch() as porch:
        program: Program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        await porch.run(change)
        assert (await program.redeem(code)).status in (400, 401)
        assert await porch.rows("grants") == []


def test_the_example_of_the_standard_verifies() -> None:
    """RFC 7636 appendix B."""
    assert pkce.fits(
        "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )


@pytest.mark.parametrize(
    "verifier", ["v" * 42, "v" * 129, "v" * 42 + "+", "v" * 42 + "\n", "", "\u00e4" * 43]
)
def test_a_verifier_that_the_standard_does_not_know_never_fits(verifier: str) -> None:
    assert not pkce.fits(verifier, pkce.challenge_of(verifier))
