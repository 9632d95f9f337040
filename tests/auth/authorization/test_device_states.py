"""Whatever happens in whatever order, one device code gives at most one login (RFC 8628)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from auth.authorization.device_authorization import DeviceAuthorization, DeviceDenied, device_code_hash
from auth.grants.token_request import Issue
from tests.auth.identity_fakes import SECOND, World


class DeviceLogins(RuleBasedStateMachine):
    codes = Bundle("codes")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.other = self.world.add_client().client
        self.issued: dict[str, list[Issue]] = {}
        self.denied: set[str] = set()

    @rule(target=codes, ip=st.sampled_from(["192.0.2.1", "192.0.2.2"]))
    def request(self, ip: str) -> Any:
        codes = self.world.ask(ip=ip)
        return codes if isinstance(codes, DeviceAuthorization) else None

    @rule(codes=codes, scope=st.sampled_from([None, "mcp:tools", ""]))
    def approve(self, codes: DeviceAuthorization | None, scope: str | None) -> None:
        if codes is not None:
            self.world.approve(codes, scope)

    @rule(codes=codes)
    def deny(self, codes: DeviceAuthorization | None) -> None:
        if codes is not None:
            before = len(self.issued.get(codes.device_code.reveal(), []))
            outcome = self.world.deny(codes)
            if isinstance(outcome, DeviceDenied):
                assert before == 0, "a used code cannot be denied"
                self.denied.add(codes.device_code.reveal())

    @rule(codes=codes, own=st.booleans(), times=st.integers(1, 3))
    def poll(self, codes: DeviceAuthorization | None, own: bool, times: int) -> None:
        if codes is None:
            return
        code = codes.device_code.reveal()
        for _ in range(times):
            outcome = self.world.poll(codes, client=None if own else self.other)
            if isinstance(outcome, Issue):
                assert own, "a code belongs to the client that asked for it"
                assert code not in self.denied
                self.issued.setdefault(code, []).append(outcome)
            elif code in self.issued:
                self.expect_the_login_to_be_over(codes)

    def expect_the_login_to_be_over(self, codes: DeviceAuthorization) -> None:
        """After a replay; unless the code was swept, and then it is simply unknown."""
        code, db = codes.device_code.reveal(), self.world.db
        known = db.fetch_one("SELECT id FROM device_codes WHERE device_code_hash = ?", device_code_hash(code))
        grant = db.fetch_one("SELECT revoked_at FROM grants WHERE id = ?", self.issued[code][0].grant_id)
        assert known is None or grant is None or grant["revoked_at"] is not None

    @rule(seconds=st.sampled_from([1, 4, 5, 30, 599, 600, 90_000]))
    def wait(self, seconds: int) -> None:
        self.world.now += seconds * SECOND

    @rule(state=st.sampled_from(["unclaimed", "enabled", "disabled"]))
    def change_the_user(self, state: str) -> None:
        self.world.db.execute("UPDATE users SET state = ?", state)

    @rule()
    def restart(self) -> None:
        """A new process finds the bytes of the old one's store, and nothing else."""
        self.world.db = self.world.db.reopened()

    @rule()
    def sweep(self) -> None:
        """As the store's maintenance does it, an hour after the code's end."""
        over = self.world.now - 3_600 * SECOND
        self.world.db.run(lambda db: db.execute("DELETE FROM device_codes WHERE expires_at <= ?", over))

    @invariant()
    def one_code_is_one_login_at_most(self) -> None:
        assert all(len(issues) == 1 for issues in self.issued.values())
        assert self.world.db.count("grants") <= len(self.issued)

    def teardown(self) -> None:
        self.world.close()


DeviceLogins.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_device_logins = DeviceLogins.TestCase
