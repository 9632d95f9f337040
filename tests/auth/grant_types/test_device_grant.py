"""Redeeming a device code: the order of answers, row by row, and what each leaves behind (RFC 8628 §3.4-3.5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from auth.clients.client_registry import ClientCredentials
from auth.grant_types.device_code_grant import DeviceCodeRow, Wait, decide, redeem
from auth.grants.redeemed_codes import Redemption
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import Account, Issue, TokenRefusal
from auth.values.identity_model import DEVICE_CODE, Client
from auth.values.issuer_and_resources import ForeignResource, Site
from auth.values.limits_and_lifetimes import DevicePolicy
from auth.values.oauth_errors import OAuthRefusal
from tests.auth.identity_fakes import DAY, ORIGIN, SECOND, SITE, START, World, error_of

POLICY = DevicePolicy()
CLIENT = Client(
    id="cli",
    kind="registered",
    name="C",
    auth_method="none",
    grant_types=(DEVICE_CODE,),
    redirect_uris=(),
    scope="mcp",
    state="enabled",
    created_at=START,
    last_used_at=None,
    secret_hash=None,
)
CODE = DeviceCodeRow(
    id="dev_1",
    client_id="cli",
    state="pending",
    server="agent",
    interval_seconds=5,
    last_poll_at=None,
    expires_at=START + 600 * SECOND,
    granted_scope="mcp",
    grant_id=None,
)
USER = Account(state="enabled", scope="mcp")
EARLY: dict[str, Any] = {"last_poll_at": START - 1 * SECOND}
OVER: dict[str, Any] = {"expires_at": START}


def outcome(
    code: DeviceCodeRow | None,
    asked: str | ForeignResource | None = None,
    user: Account | None = USER,
    *,
    client: Client = CLIENT,
    served: bool = True,
) -> Redemption | Wait | TokenRefusal:
    return decide(code, client, asked, user, served=served, now=START, policy=POLICY)


# Each row is wrong in its own way and in every later way as well, so the order itself is what is tested.
@pytest.mark.parametrize(
    ("code", "asked", "expected"),
    [
        (None, ForeignResource(), TokenRefusal(error="invalid_grant", reason="unknown code")),
        (
            replace(CODE, state="used", grant_id="grt_1", client_id="x", **OVER),
            ForeignResource(),
            TokenRefusal(error="invalid_grant", reason="code used again", revoke="grt_1"),
        ),
        (
            replace(CODE, client_id="x", **OVER),
            ForeignResource(),
            TokenRefusal(error="invalid_grant", reason="code of another client"),
        ),
        (
            replace(CODE, **OVER),
            ForeignResource(),
            TokenRefusal(error="invalid_target", reason="another resource"),
        ),
        (replace(CODE, **OVER), "other", TokenRefusal(error="invalid_target", reason="another resource")),
        (replace(CODE, state="denied", **OVER), None, TokenRefusal(error="expired_token", reason="expired")),
        (
            replace(CODE, state="approved", **OVER),
            None,
            TokenRefusal(error="expired_token", reason="expired"),
        ),
        (
            replace(CODE, state="denied", **EARLY),
            "agent",
            TokenRefusal(error="access_denied", reason="denied"),
        ),
        (replace(CODE, state="approved", **EARLY), "agent", Redemption(scope="mcp")),
        (replace(CODE, **EARLY), None, Wait(error="slow_down", interval_seconds=10)),
        (CODE, None, Wait(error="authorization_pending", interval_seconds=5)),
    ],
)
def test_answers_come_in_order(
    code: DeviceCodeRow | None,
    asked: str | ForeignResource | None,
    expected: Redemption | Wait | TokenRefusal,
) -> None:
    assert outcome(code, asked) == expected


@pytest.mark.parametrize(
    ("since_ms", "interval", "expected"),
    [
        (4_000, 5, Wait(error="authorization_pending", interval_seconds=5)),
        (3_999, 5, Wait(error="slow_down", interval_seconds=10)),
        (9_000, 10, Wait(error="authorization_pending", interval_seconds=10)),
        (8_999, 10, Wait(error="slow_down", interval_seconds=15)),
        (0, 28, Wait(error="slow_down", interval_seconds=30)),
        (0, 30, Wait(error="slow_down", interval_seconds=30)),
    ],
)
def test_a_second_of_haste_is_forgiven_and_the_interval_grows_to_thirty(
    since_ms: int, interval: int, expected: Wait
) -> None:
    code = replace(CODE, last_poll_at=START - since_ms, interval_seconds=interval)
    assert outcome(code) == expected


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (None, "user not enabled"),
        (replace(USER, state="disabled"), "user not enabled"),
        (replace(USER, state="locked"), "user not enabled"),
        (replace(USER, scope=""), "no scope left"),
    ],
)
def test_an_approval_does_not_outlive_its_user(user: Account | None, reason: str) -> None:
    refused = outcome(replace(CODE, state="approved"), user=user)
    assert refused == TokenRefusal(error="access_denied", reason=reason)


def test_an_unclaimed_owner_counts_as_enabled_and_a_narrower_client_narrows() -> None:
    approved = replace(CODE, state="approved")
    assert outcome(approved, user=replace(USER, state="unclaimed")) == Redemption(scope="mcp")
    assert outcome(approved, client=replace(CLIENT, scope="mcp:tools")) == Redemption(scope="mcp:tools")
    assert outcome(approved, served=False) == TokenRefusal(
        error="access_denied", reason="server no longer configured"
    )


def test_an_approved_code_becomes_one_login(world: World) -> None:
    codes = world.asked(client_name="Laptop", hostname="box", resources=(ORIGIN + "/other/mcp",))
    world.now += 20 * SECOND
    world.approve(codes, "mcp:tools")
    approved_at = world.now
    world.now += 3 * SECOND
    issue = world.poll(codes)
    assert isinstance(issue, Issue)
    grant = world.db.one("grants")
    assert (issue.subject, issue.server, issue.scope, issue.counter) == (
        world.owner,
        "other",
        "mcp:tools",
        1,
    )
    assert (issue.auth_time, issue.issued_at, issue.ends_at) == (approved_at, world.now, world.now + 30 * DAY)
    assert (grant["id"], grant["approved_by"], grant["client_name"], grant["hostname"]) == (
        issue.grant_id,
        "local:0",
        "Laptop",
        "box",
    )
    assert world.db.one("device_codes")["state"] == "used"
    assert world.client().last_used_at == world.now
    assert world.db.audited("device.redeemed") == [("ok", world.id_of(codes))]


def test_a_used_code_is_refused_and_ends_the_login_it_gave(world: World) -> None:
    codes = world.asked()
    world.approve(codes)
    issue = world.poll(codes)
    assert isinstance(issue, Issue)
    assert error_of(world.poll(codes)) == "invalid_grant"
    assert world.db.one("grants")["revoked_reason"] == "device code used again"
    assert world.db.changes[-1] == ("grant", issue.grant_id)
    assert world.db.audited("device.redeemed")[-1] == ("refused", f"{world.id_of(codes)} code used again")
    assert world.db.audited("grant.revoked") == [("ok", "device code used again")]


def test_a_used_code_is_still_known_after_its_own_lifetime(world: World) -> None:
    codes = world.asked()
    world.approve(codes)
    world.poll(codes)
    world.now += 3_600 * SECOND
    assert error_of(world.poll(codes)) == "invalid_grant"
    assert world.db.one("grants")["revoked_at"] == world.now


def test_polling_too_early_slows_down_until_approval_beats_it(world: World) -> None:
    codes = world.asked()
    assert error_of(world.poll(codes)) == "authorization_pending"
    assert error_of(world.poll(codes)) == "slow_down"
    world.now += 5 * SECOND
    assert error_of(world.poll(codes)) == "slow_down"
    assert world.db.one("device_codes")["interval_seconds"] == 12
    world.now += 11 * SECOND
    assert error_of(world.poll(codes)) == "authorization_pending"
    world.approve(codes)
    assert isinstance(world.poll(codes), Issue)


def test_a_waiting_poll_leaves_no_audit_row(world: World) -> None:
    codes = world.asked()
    before = world.db.count("audit")
    world.poll(codes)
    world.poll(codes)
    assert world.db.count("audit") == before


def test_a_foreign_resource_consumes_nothing(world: World) -> None:
    codes = world.asked()
    world.approve(codes)
    assert error_of(world.poll(codes, resources=("https://evil.example/mcp",))) == "invalid_target"
    assert error_of(world.poll(codes, resources=(ORIGIN + "/other/mcp",))) == "invalid_target"
    assert isinstance(world.poll(codes, resources=(ORIGIN + "/mcp/", ORIGIN + "/mcp")), Issue)


def test_another_client_gets_nothing_and_uses_nothing_up(world: World) -> None:
    codes = world.asked()
    world.approve(codes)
    other = world.add_client().client
    assert error_of(world.poll(codes, client=other)) == "invalid_grant"
    assert isinstance(world.poll(codes), Issue)


def test_a_user_disabled_after_approving_gets_no_login(world: World) -> None:
    codes = world.asked()
    world.approve(codes)
    world.db.execute("UPDATE users SET state = 'disabled'")
    assert error_of(world.poll(codes)) == "access_denied"
    assert world.db.count("grants") == 0


def test_a_client_without_the_refresh_grant_gets_an_access_token_only(world: World) -> None:
    client = world.add_client(grant_types=(DEVICE_CODE,)).client
    assert world.login(client=client).counter is None


def test_a_server_that_is_gone_from_the_configuration_gets_no_new_logins(world: World) -> None:
    codes = world.asked(resources=(ORIGIN + "/other/mcp",))
    world.approve(codes)
    world.site = Site(issuer=SITE.issuer, loopback=True, servers={"agent": "/mcp"})
    assert error_of(world.poll(codes)) == "access_denied"


def test_a_missing_device_code_is_a_malformed_request(world: World) -> None:
    form = TokenForm(grant_type=DEVICE_CODE, credentials=ClientCredentials(client_id="ostiary-cli"))
    exchange, client = world.exchange(form), world.client()
    refused = world.db.run(lambda db: redeem(db, client, exchange))
    assert refused == OAuthRefusal(error="invalid_request", description="device_code is missing")


def test_losing_the_race_for_the_row_gives_nothing(world: World) -> None:
    """On an engine with parallel writers another transaction may take the code between our look and our update."""
    codes = world.asked()
    world.approve(codes)
    real = world.db.execute

    def raced(sql: str, *params: object) -> int:
        return 0 if sql.startswith("UPDATE device_codes SET state = 'used'") else real(sql, *params)

    world.db.execute = raced  # type: ignore[method-assign]
    assert error_of(world.poll(codes)) == "invalid_grant"
    assert world.db.count("grants") == 0
