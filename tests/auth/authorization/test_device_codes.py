"""Asking for a device code, and deciding on it: auth/authorization/device_authorization.py (RFC 8628 §3.1-3.3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import (
    ALPHABET,
    DeviceApproved,
    DeviceAuthorization,
    DeviceDenied,
    NotPending,
)
from auth.values.identity_model import DEVICE_CODE
from auth.values.limits_and_lifetimes import DevicePolicy, Policy
from auth.values.oauth_errors import OAuthRefusal
from tests.auth.identity_fakes import DAY, MINUTE, ORIGIN, SECOND, World, error_of


def test_a_code_is_eight_letters_in_two_groups_and_the_device_code_has_256_bits(world: World) -> None:
    codes = world.asked()
    left, right = codes.user_code.reveal().split("-")
    assert len(left) == len(right) == 4
    assert set(left + right) <= set(ALPHABET)
    assert len(codes.device_code.reveal()) == 43
    assert (codes.expires_in_seconds, codes.interval_seconds) == (600, 2)


def test_other_clients_are_asked_to_poll_less_often_than_our_own(world: World) -> None:
    other = world.add_client(grant_types=(DEVICE_CODE,)).client
    assert world.asked(client=other).interval_seconds == 5


def test_the_store_holds_neither_code(world: World) -> None:
    codes = world.asked()
    dump = "\n".join(world.db.database.dump())
    assert codes.device_code.reveal() not in dump
    assert codes.user_code.reveal() not in dump
    assert codes.user_code.reveal().replace("-", "") not in dump


def test_codes_do_not_show_in_a_repr(world: World) -> None:
    codes = world.asked()
    assert codes.device_code.reveal() not in repr(codes)
    assert codes.user_code.reveal() not in f"{codes} {codes.user_code}"


@settings(deadline=None)
@given(code=st.text(ALPHABET, min_size=8, max_size=8), noise=st.text(" -_.:/0189aeiouAEIOUyY", max_size=8))
def test_a_code_is_understood_however_it_is_typed(code: str, noise: str) -> None:
    typed = noise + device.display(code).lower() + noise
    assert device.normalise(typed) == code


@pytest.mark.parametrize("typed", ["", "BCDF", "BCDFGHJKL", "12345678", "B" * 64, "\x00" * 8])
def test_what_is_no_code_is_not_looked_up(typed: str) -> None:
    assert device.normalise(typed) is None


def test_an_approver_sees_who_asks_and_claims_are_cleaned_and_cut(world: World) -> None:
    codes = world.asked(
        client_name="My \u202eevil\u202c\x1b[31m client" + "x" * 200,
        hostname="lap\x00top\n.local" + "y" * 200,
        scope="mcp:tools",
        ip="192.0.2.7",
    )
    request = world.find(codes)
    assert request is not None
    assert request.client_name.startswith("My evil[31m client")
    assert len(request.client_name) == 80
    assert request.hostname.startswith("laptop .local")
    assert len(request.hostname) == 120
    assert (request.client_id, request.registered_name) == ("ostiary-cli", "Ostiary in a terminal")
    assert (request.ip, request.user_agent, request.origin) == ("192.0.2.7", "test/1", ORIGIN)
    assert (request.scope, request.server, request.verified) == ("mcp:tools", "agent", False)
    assert request.expires_at - request.created_at == 600 * SECOND
    assert world.db.run(lambda db: device.pending(db, world.now)) == [request]


def test_a_client_with_a_secret_counts_as_verified(world: World) -> None:
    added = world.add_client(auth_method="client_secret_basic")
    request = world.find(world.asked(client=added.client))
    assert request is not None
    assert request.verified


def test_a_client_without_the_grant_gets_no_code(world: World) -> None:
    added = world.add_client(grant_types=("refresh_token",))
    assert error_of(world.ask(client=added.client)) == "unauthorized_client"


def test_a_resource_that_is_not_ours_is_refused_and_ours_is_remembered(world: World) -> None:
    assert error_of(world.ask(resources=("https://elsewhere.example/mcp",))) == "invalid_target"
    assert error_of(world.ask(resources=(ORIGIN + "/mcp", ORIGIN + "/other/mcp"))) == "invalid_target"
    request = world.find(world.asked(resources=(ORIGIN + "/other/mcp/?utm_source=x",)))
    assert request is not None
    assert request.server == "other"


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("", "mcp mcp:tools mcp:resources"),
        ("mcp", "mcp"),
        ("mcp:tools offline_access", "mcp:tools"),
        ("mcp nonsense", "mcp"),
        ("offline_access", "mcp mcp:tools mcp:resources"),
    ],
)
def test_scopes_are_limited_to_what_the_client_may_ask_for(world: World, asked: str, got: str) -> None:
    request = world.find(world.asked(scope=asked))
    assert request is not None
    assert request.scope == got


def test_only_unknown_scopes_are_an_error(world: World) -> None:
    assert error_of(world.ask(scope="read write")) == "invalid_scope"


def test_the_sixth_code_of_a_requester_waits_for_the_first_to_end(world: World) -> None:
    codes = [world.asked() for _ in range(5)]
    refused = world.ask()
    assert isinstance(refused, OAuthRefusal)
    assert (refused.status, refused.error) == (429, "temporarily_unavailable")
    assert refused.retry_after_seconds == 600
    assert isinstance(world.ask(ip="192.0.2.1"), DeviceAuthorization)
    world.deny(codes[0])
    assert isinstance(world.ask(), DeviceAuthorization)


def test_one_network_starts_twenty_logins_a_minute(world: World) -> None:
    for _ in range(20):
        world.deny(world.asked())
    world.now += 20 * SECOND
    refused = world.ask()
    assert isinstance(refused, OAuthRefusal)
    assert refused.retry_after_seconds == 40
    world.now += 40 * SECOND
    assert isinstance(world.ask(), DeviceAuthorization)


def test_there_is_a_roof_over_all_waiting_codes() -> None:
    world = World(policy=Policy(device=DevicePolicy(live_codes=3)))
    for number in range(3):
        world.asked(ip=f"192.0.2.{number}")
    assert error_of(world.ask(ip="198.51.100.1")) == "temporarily_unavailable"
    world.now += 600 * SECOND
    assert isinstance(world.ask(ip="198.51.100.1"), DeviceAuthorization)
    world.close()


def test_a_code_in_use_is_not_given_out_again(world: World) -> None:
    draws = iter([b"\x01" * 32, b"\x01" * 32])
    world.draw = lambda length: next(draws)[:length]
    first = world.asked()
    world.db.execute("UPDATE device_codes SET device_code_hash = 'moved', id = 'dev_moved'")
    second = world.asked()
    assert first.device_code.reveal() == second.device_code.reveal()
    assert first.user_code.reveal() != second.user_code.reveal()


def test_approving_happens_once_and_before_the_end(world: World) -> None:
    codes = world.asked()
    request = world.find(codes)
    assert request is not None
    assert world.approve(codes) == DeviceApproved(request=request, scope="mcp mcp:tools mcp:resources")
    assert world.approve_id(request.id) == NotPending(reason="gone")
    late = world.asked()
    late_id = world.id_of(late)
    world.now += 600 * SECOND
    assert world.find(late) is None
    assert world.approve_id(late_id) == NotPending(reason="gone")
    assert world.approve_id("dev_unknown") == NotPending(reason="gone")


def test_an_approver_can_give_less_but_not_more(world: World) -> None:
    codes = world.asked(scope="mcp:tools")
    assert world.approve_id(world.id_of(codes), "") == NotPending(reason="no_scope")
    approved = world.approve_id(world.id_of(codes), "mcp")
    assert isinstance(approved, DeviceApproved)
    assert approved.scope == "mcp:tools"


def test_nobody_is_given_more_than_the_user_may_have(world: World) -> None:
    world.db.execute("UPDATE users SET scope = 'mcp:tools'")
    approved = world.approve(world.asked(scope="mcp"))
    assert isinstance(approved, DeviceApproved)
    assert approved.scope == "mcp:tools"


@pytest.mark.parametrize("state", ["disabled", "locked"])
def test_a_user_who_is_not_enabled_approves_nothing(world: World, state: str) -> None:
    codes = world.asked()
    world.db.execute("UPDATE users SET state = ?", state)
    assert world.approve(codes) == NotPending(reason="user_not_enabled")
    assert world.approve_id(world.id_of(codes), subject="usr_nobody") == NotPending(reason="user_not_enabled")


def test_denying_takes_back_an_approval_that_was_not_used_yet(world: World) -> None:
    codes = world.asked()
    world.approve(codes)
    assert isinstance(world.deny(codes), DeviceDenied)
    assert error_of(world.poll(codes)) == "access_denied"
    assert world.deny(codes) == NotPending(reason="gone")
    assert world.db.run(lambda db: device.deny(db, "dev_x", by="local:0", now=world.now)) == NotPending(
        reason="gone"
    )


def test_every_decision_leaves_an_audit_row(world: World) -> None:
    codes = world.asked()
    request_id = world.id_of(codes)
    world.ask(scope="nonsense")
    world.approve(codes)
    world.approve_id(request_id)
    world.deny(codes)
    assert world.db.audited("device.requested") == [("ok", request_id), ("refused", "invalid_scope")]
    assert world.db.audited("device.approved") == [("ok", request_id), ("refused", f"{request_id} gone")]
    assert world.db.audited("device.denied") == [("ok", request_id)]
    row = world.db.fetch_one("SELECT * FROM audit WHERE event = 'device.approved'")
    assert row is not None
    assert (row["actor"], row["client_id"], row["ip"]) == ("local:0", "ostiary-cli", "127.0.0.1")


def test_a_lifetime_outside_its_bounds_is_a_mistake_in_the_configuration() -> None:
    for lifetime in (59 * SECOND, 16 * MINUTE, DAY):
        with pytest.raises(ValueError, match="60 to 900"):
            replace(DevicePolicy(), lifetime_ms=lifetime)
