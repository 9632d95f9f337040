"""server/certificates: a certificate got, renewed, revoked, and everything that goes wrong on the way, against an authority in memory and a clock
that jumps.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from structlog.testing import CapturingLogger

from server.certificates.acme_authority import NONCE_TRIES
from server.certificates.certificate_files import AcmeFiles, KeptInFiles
from server.certificates.certificate_keeper import LOOK_SECONDS, PAUSES, CertificateKeeper, CertificatePlan
from server.certificates.certificate_troubles import CertificateTrouble, trouble
from server.certificates.kept_certificates import CannotKeep, IssuedCertificate, KeptOrder
from server.certificates.name_proofs import Proofs, ShownProof
from server.certificates.signed_requests import ExternalAccount
from server.certificates.x509_certificates import key_pem
from tests.certificates.fake_authority import (
    DAY,
    DIRECTORY,
    FakeAuthority,
    acme_answer,
    looking_at,
    pem_blocks,
    serial_of,
)
from tests.snapshots import Snapshot

NAME = "agent.example.org"
START = 1_800_000_000.0  # when every test begins, on the wall
HOUR = 3600.0
Clock = trio.testing.MockClock  # which a test has to name, for it to be the one that jumps


class Office:
    """A keeper, its authority, and what was served when."""

    def __init__(self, tmp_path: Path, **plan: Any) -> None:
        self.home = tmp_path
        self.wrong_by = 0.0  # how far this machine's clock is ahead of the true time
        self.proofs = Proofs()
        self.looks: list[tuple[str, str]] = []
        self.refuses: dict[str, tuple[str, str]] = {}  # by way
        self.authority = FakeAuthority(clock=self.true_time, look=self._look)
        self.plan: dict[str, Any] = {
            "names": (NAME,), "directory": DIRECTORY, "ways": ("tls-alpn-01",), **plan
        }  # fmt: skip
        self.eab: ExternalAccount | None = None
        self.logged = CapturingLogger()
        self.served: list[str] = []  # serials
        self.cannot_take = False
        self.keeper = self.another()

    def another(self) -> CertificateKeeper:
        """As after a restart."""
        self.proofs = Proofs()
        wrapper = structlog.make_filtering_bound_logger(0)
        log: Any = structlog.wrap_logger(
            self.logged, processors=[], wrapper_class=wrapper, context_class=dict
        )

        def take(issued: IssuedCertificate) -> None:
            if self.cannot_take:
                raise CannotKeep("cannot be taken")
            self.served.append(serial_of(issued.chain))

        self.keeper = CertificateKeeper(
            CertificatePlan(**self.plan),
            KeptInFiles(AcmeFiles(self.home)),
            self.proofs,
            self.authority,
            log,
            take=take,
            eab=lambda: self.eab,
            clock=lambda: self.true_time() + self.wrong_by,
            spread=lambda: 0.5,
        )
        return self.keeper

    def true_time(self) -> float:
        return START + trio.current_time()

    async def _look(self, way: str, name: str, token: str, authorized: str) -> tuple[str, str] | None:
        self.looks.append((way, name))
        if way in self.refuses:
            return self.refuses[way]
        return await looking_at(self.proofs)(way, name, token, authorized)

    def events(self) -> list[str]:
        return [call.kwargs["event"] for call in self.logged.calls]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [call.kwargs for call in self.logged.calls if call.kwargs["event"] == event]

    async def runs(self, seconds: float) -> None:
        """The keeper, for so long on the clock that jumps."""
        with trio.move_on_after(seconds):
            await self.keeper.run()

    async def runs_until(self, there: Callable[[], bool], within: float = 400 * DAY) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keeper.run)
            with trio.fail_after(within):
                while not there():
                    await trio.sleep(300)
            nursery.cancel_scope.cancel()

    @property
    def state(self) -> Any:
        return self.keeper.state


@pytest.fixture
def clock(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """A clock that jumps does not wait for threads: what would be done in one is done in place."""

    async def in_place(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", in_place)
    return autojump_clock


@pytest.fixture
def office(tmp_path: Path, clock: trio.testing.MockClock) -> Office:
    return Office(tmp_path)


async def test_the_first_certificate_is_got_at_once_and_kept_for_its_owner_alone(
    office: Office, clock: Clock
) -> None:
    await office.keeper.begin()
    assert office.keeper.note() == f"certificate: none for {NAME} yet: it is being got"
    await office.runs(60)
    assert len(office.served) == 1
    assert office.keeper.note() == ""
    assert office.looks == [("tls-alpn-01", NAME)]
    assert office.state.trouble is None
    assert not office.proofs, "nothing is shown any longer than it is looked at"
    folder = office.home / "acme"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    kept = (folder / "certificate.pem").read_text("ascii")
    assert pem_blocks(kept) == ["PRIVATE KEY", "CERTIFICATE", "CERTIFICATE"]
    assert "PRIVATE" not in str(office.logged.calls)
    assert office.said("certificate.account_made")[0]["terms"] == "https://ca.test/terms"


async def test_after_a_restart_the_certificate_is_served_without_asking_anybody(
    office: Office, clock: Clock
) -> None:
    await office.runs(60)
    asked = len(office.authority.asked)
    await office.another().begin()
    assert len(office.served) == 2 and office.served[0] == office.served[1]
    await office.runs(30)
    assert set(office.authority.asked[asked:]) <= {"/directory"}


@pytest.mark.parametrize("life", [90 * DAY, 6 * DAY, DAY])
async def test_it_is_renewed_before_a_third_of_its_life_is_left_with_another_key(
    office: Office, clock: Clock, life: float
) -> None:
    office.authority.life_seconds = life
    await office.runs(60)
    first = office.state.serving
    key = (office.home / "acme" / "certificate.pem").read_text("ascii").partition("-----BEGIN CERT")[0]
    await office.runs_until(lambda: len(office.served) == 2)
    renewed_at = office.true_time()
    assert first.not_before + 0.59 * life < renewed_at < first.not_after - life / 3
    assert office.served[0] != office.served[1]
    again = (office.home / "acme" / "certificate.pem").read_text("ascii").partition("-----BEGIN CERT")[0]
    assert key != again
    assert len(office.authority.accounts) == 1


async def test_each_certificate_has_a_moment_of_its_own(office: Office, clock: Clock) -> None:
    moments = set[float]()
    for _ in range(4):
        await office.runs(60)
        moments.add(office.state.renews_at - office.state.serving.not_before)
        office.keeper.hurry()
    assert len(moments) == 4


async def test_an_authority_that_wants_it_renewed_earlier_is_heard_and_told_what_it_replaces(
    office: Office, clock: Clock
) -> None:
    office.authority.suggests = lambda: (START + 5 * DAY, START + 6 * DAY)
    await office.runs(60)
    renewal_id = office.state.serving.renewal_id
    assert renewal_id.count(".") == 1
    await office.runs_until(lambda: len(office.served) == 2)
    assert START + 5 * DAY < office.true_time() < START + 6 * DAY + 2 * LOOK_SECONDS
    assert office.authority.orders[1].replaces == renewal_id
    assert f"/renewal/{renewal_id}" in office.authority.asked


async def test_one_that_wants_it_renewed_later_than_is_safe_is_not(office: Office, clock: Clock) -> None:
    office.authority.suggests = lambda: (START + 85 * DAY, START + 89 * DAY)
    await office.runs_until(lambda: len(office.served) == 2)
    assert office.true_time() < START + 60 * DAY


async def test_several_names_are_proved_and_all_in_one_certificate(tmp_path: Path, clock: Clock) -> None:
    names = (NAME, "mcp.example.org", "a.b.example.org")
    office = Office(tmp_path, names=names)
    await office.runs(120)
    assert office.state.serving.names == names
    assert sorted(name for _, name in office.looks) == sorted(names)


async def test_another_name_in_the_settings_is_another_certificate_and_one_less_is_none(
    tmp_path: Path, clock: Clock
) -> None:
    office = Office(tmp_path)
    await office.runs(60)
    office.plan["names"] = (NAME, "mcp.example.org")
    await office.another().begin()
    assert office.served[0] == office.served[1], "the one of before is served meanwhile"
    await office.runs(60)
    assert office.state.serving.names == (NAME, "mcp.example.org")
    office.plan["names"] = ("mcp.example.org",)
    await office.another().begin()
    await office.runs(60)
    assert len(office.authority.orders) == 2


# ── proofs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_where_port_443_does_not_do_the_second_attempt_is_by_port_80(
    tmp_path: Path, clock: Clock
) -> None:
    office = Office(tmp_path, ways=("tls-alpn-01", "http-01"))
    office.refuses["tls-alpn-01"] = ("tls", "no ALPN")
    await office.runs(2 * PAUSES[0])
    assert [way for way, _ in office.looks] == ["tls-alpn-01", "http-01"]
    assert len(office.served) == 1


async def test_an_authority_that_wants_another_kind_of_proof_is_told_of(office: Office, clock: Clock) -> None:
    office.authority.offered = ("dns-01",)
    await office.runs(30)
    assert "tls-alpn-01" in office.state.trouble.words
    assert "http_port = 80" in office.state.trouble.hint


TROUBLES = [
    ("dns", "NXDOMAIN looking up A", "in the DNS", "A or AAAA record"),
    ("connection", "timeout", f"{NAME} on port 443", "firewall"),
    ("unauthorized", "wrong certificate", f"under {NAME}", "may end TLS"),
    ("tls", "remote error: no application protocol", "TLS", "proxy or a CDN"),
    ("caa", "CAA record forbids", f"CAA record of {NAME}", "CAA records"),
    ("somethingNew", "whatever", f"{NAME} (somethingNew)", ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "detail", "words", "hint"), TROUBLES, ids=[each[0] for each in TROUBLES])
async def test_why_a_name_was_not_proved_is_said_with_what_to_do(
    office: Office, clock: Clock, kind: str, detail: str, words: str, hint: str
) -> None:
    office.refuses["tls-alpn-01"] = (kind, detail)
    await office.runs(30)
    told = office.state.trouble
    assert words in told.words
    assert told.words.endswith(detail)
    assert hint in told.hint
    assert told.words in office.keeper.note()
    (logged,) = office.said("certificate.failed")
    assert (logged["reason"], logged["served_days"]) == (told.words, 0)
    assert not office.proofs
    del office.refuses["tls-alpn-01"]
    await office.runs(2 * HOUR)
    assert office.state.trouble is None and len(office.served) == 1


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_number_that_is_not_taken_is_exchanged_and_nobody_notices(
    office: Office, clock: Clock
) -> None:
    await office.authority("https://ca.test/nonce", None)
    for _ in range(3):
        office.authority.fault("/order", "badNonce")
    await office.runs(60)
    assert len(office.served) == 1
    assert office.said("certificate.failed") == []


async def test_an_authority_that_takes_no_number_at_all_is_left_alone(office: Office, clock: Clock) -> None:
    for _ in range(NONCE_TRIES):
        office.authority.fault("/account", "badNonce")
    await office.runs(30)
    assert "badNonce" in office.state.trouble.words
    assert office.authority.asked.count("/account") == NONCE_TRIES


@pytest.mark.parametrize("says", ["36000", ""])
async def test_who_asked_too_often_waits_as_long_as_it_is_told_also_after_a_restart(
    office: Office, clock: Clock, says: str
) -> None:
    wait = 36_000.0 if says else HOUR
    office.authority.fault("/order", "rateLimited", 429, retry_after=says, detail="too many certificates")
    await office.runs(60)
    assert "too many requests" in office.state.trouble.words
    await office.another().begin()
    assert "too many requests" in office.state.trouble.words
    asked = len(office.authority.asked)
    await office.runs(wait * 0.85)
    assert len(office.authority.asked) == asked
    await office.runs(wait * 0.3)
    assert len(office.served) == 1
    await office.another().begin()
    assert office.state.trouble is None, "what is over is forgotten"


async def test_a_date_may_say_how_long_to_wait(office: Office, clock: Clock) -> None:
    from datetime import UTC, datetime
    from email.utils import format_datetime

    when = format_datetime(datetime.fromtimestamp(START + 5 * HOUR, UTC), usegmt=True)
    office.authority.fault("/order", "rateLimited", 429, retry_after=when)
    await office.runs(4.9 * HOUR)
    assert office.served == []
    await office.runs(HOUR)
    assert len(office.served) == 1


async def test_pauses_grow_and_are_never_longer_than_some_hours(office: Office, clock: Clock) -> None:
    office.authority.down = True
    await office.keeper.begin()
    await office.runs(3 * DAY)
    logged = [each["again_in_seconds"] for each in office.said("certificate.failed")]
    assert logged[: len(PAUSES)] == [round(pause) for pause in PAUSES]
    assert set(logged[len(PAUSES) :]) == {round(PAUSES[-1])}
    assert office.state.trouble.since == START
    assert office.state.trouble.attempts == len(logged)


async def test_an_authority_that_cannot_be_reached_at_the_start_is_asked_until_it_is_there(
    office: Office, clock: Clock
) -> None:
    office.authority.down = True
    await office.runs(10)
    assert "cannot be reached: connection refused" in office.keeper.note()
    office.authority.down = False
    await office.runs(2 * PAUSES[0])
    assert len(office.served) == 1 and office.keeper.note() == ""


async def test_the_certificate_of_before_is_served_until_it_is_over_and_then_that_is_said(
    office: Office, clock: Clock
) -> None:
    office.authority.life_seconds = 10 * DAY
    await office.runs(60)
    office.authority.down = True
    await office.runs(8 * DAY)
    assert len(office.served) == 1
    assert "of before is good" in office.keeper.note()
    failed = [call for call in office.logged.calls if call.kwargs["event"] == "certificate.failed"]
    assert {call.method_name for call in failed} == {"warning"}
    await office.runs(3 * DAY)
    assert "is over since" in office.keeper.note()
    assert office.logged.calls[-1].method_name == "error"
    office.authority.down = False
    await office.runs(DAY)
    assert len(office.served) == 2 and office.keeper.note() == ""


@pytest.mark.parametrize(
    ("status", "kind", "told_as"),
    [
        (500, "serverInternal", "serverInternal"),
        (503, "rateLimited", "serverInternal"),
        (403, "userActionRequired", "userActionRequired"),
        (400, "invalidContact", "invalidContact"),
        (400, "invalidProfile", "invalidProfile"),
        (400, "rejectedIdentifier", "rejectedIdentifier"),
    ],
)
async def test_every_refusal_has_its_sentence(
    office: Office, clock: Clock, status: int, kind: str, told_as: str
) -> None:
    office.authority.fault("/order", kind, status, detail="\x1b[31mred\n" + "x" * 5000)
    await office.runs(30)
    assert office.state.trouble.words.startswith(str(trouble(told_as, "")))
    assert len(office.state.trouble.words) < 700
    assert office.state.trouble.words.isprintable()


async def test_an_answer_that_is_no_acme_is_called_that(office: Office, clock: Clock) -> None:
    office.authority.faults.append(("/directory", acme_answer(200, b"<html>hello</html>")))
    await office.runs(30)
    assert "not ACME" in office.state.trouble.words
    assert "directory" in office.state.trouble.hint


# ── the account ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_account_that_the_authority_forgot_is_made_again(office: Office, clock: Clock) -> None:
    await office.runs(60)
    office.authority.accounts.clear()
    office.keeper.hurry()
    await office.runs(60)
    assert len(office.served) == 2 and office.state.trouble is None
    assert "certificate.account_gone" in office.events()


async def test_an_account_that_was_closed_is_followed_by_another_with_another_key(
    office: Office, clock: Clock
) -> None:
    await office.runs(60)
    (first,) = office.authority.accounts.values()
    first["status"] = "deactivated"
    office.keeper.hurry()
    await office.runs(60)
    assert len(office.served) == 2
    second = list(office.authority.accounts.values())[1]
    assert first["jwk"] != second["jwk"]


async def test_an_authority_with_customers_is_shown_which_one_this_is(office: Office, clock: Clock) -> None:
    office.authority.external_accounts = {"kid-1": "c2VjcmV0LXNlY3JldA"}
    await office.runs(30)
    assert "customers" in office.state.trouble.words
    assert "eab_key" in office.state.trouble.hint
    office.eab = ExternalAccount("kid-1", "c2VjcmV0LXNlY3JldA")
    await office.runs(2 * HOUR)
    assert len(office.served) == 1
    assert "c2VjcmV0" not in str(office.logged.calls) + repr(office.eab)


async def test_another_authority_has_an_account_of_its_own_and_gives_another_certificate(
    tmp_path: Path, clock: Clock
) -> None:
    office = Office(tmp_path)
    await office.runs(60)
    office.plan["directory"] = "https://ca.test/directory?other"
    real = office.authority

    async def other(url: str, body: bytes | None, accept: str = "") -> Any:
        return await real(url.removesuffix("?other"), body, accept)

    office.another()
    office.keeper._ask = other  # pyright: ignore[reportPrivateUsage]
    await office.keeper.begin()
    await office.runs(60)
    assert len(office.authority.accounts) == 2
    assert office.served[0] == office.served[1] != office.served[2]


# ── what a crash leaves ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stopped_at", ["/challenges/", "/finalize/", "/certificates/"])
async def test_an_order_is_taken_up_again_where_it_was_left(
    office: Office, clock: Clock, stopped_at: str
) -> None:
    class Killed(BaseException):
        pass

    office.authority.faults.append((stopped_at, Killed()))  # type: ignore[arg-type]
    real = office.authority.__call__

    async def dying(url: str, body: bytes | None, accept: str = "") -> Any:
        if stopped_at in url and office.authority.faults:
            office.authority.faults.clear()
            if stopped_at != "/challenges/":
                await real(url, body, accept)  # it arrived, and its answer did not
            raise Killed
        return await real(url, body, accept)

    office.keeper._ask = dying  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(Killed):
        await office.runs(60)
    assert office.served == []
    await office.another().begin()
    await office.runs(60)
    assert len(office.served) == 1
    assert len(office.authority.orders) == 1, "the same order, not a second one"


async def test_an_order_that_is_gone_or_for_other_names_is_begun_anew(tmp_path: Path, clock: Clock) -> None:
    office = Office(tmp_path)
    office.authority.fault("/finalize/", "serverInternal", 500)
    await office.runs(10)
    office.plan["names"] = (NAME, "mcp.example.org")
    await office.another().begin()
    office.authority.fault("/finalize/", "serverInternal", 500)
    await office.runs(10)
    assert len(office.authority.orders) == 2
    office.authority.orders[1].status = "invalid"
    await office.another().begin()
    await office.runs(60)
    assert len(office.served) == 1 and len(office.authority.orders) == 3


async def test_an_authority_that_takes_its_time_is_waited_for(office: Office, clock: Clock) -> None:
    office.authority.finishes_later = True
    await office.runs(60)
    assert len(office.served) == 1


async def test_a_certificate_for_another_key_or_name_is_not_served(office: Office, clock: Clock) -> None:
    from server.certificates.x509_certificates import new_key

    for chain in (
        office.authority.certificate([NAME], new_key().public_key(), begins=START),
        b"junk",
    ):
        await office.authority("https://ca.test/nonce", None)
        office.authority.faults.append(("/certificates/", acme_answer(200, chain)))
        await office.another().begin()
        await office.runs(30)
        assert "that the authority gave" in office.state.trouble.words
    assert office.served == []


async def test_files_that_cannot_be_used_are_named_and_end_nothing(office: Office, clock: Clock) -> None:
    await office.runs(60)
    (office.home / "acme" / "account.json").write_text("{", "ascii")
    office.keeper.hurry()
    await office.runs(30)
    assert "account.json" in office.state.trouble.words
    (office.home / "acme" / "certificate.pem").write_text("junk", "ascii")
    with pytest.raises(CannotKeep, match=r"certificate\.pem"):
        await office.another().begin()
    (office.home / "acme" / "certificate.pem").chmod(0o644)
    with pytest.raises(CannotKeep, match="others"):
        await office.another().begin()


async def test_an_error_of_our_own_ends_nothing(office: Office, clock: Clock) -> None:
    office.authority.faults.append(("/directory", RuntimeError("a bug")))
    await office.runs(2 * PAUSES[0])
    assert "certificate.crashed" in office.events()
    assert len(office.served) == 1


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("days", [400, -400, 1])
async def test_with_a_wrong_clock_certificates_are_not_got_again_and_again_and_the_owner_is_told(
    office: Office, clock: Clock, days: int
) -> None:
    office.wrong_by = days * DAY
    await office.runs(60)
    await office.another().begin()
    await office.runs(20 * DAY)
    assert len(office.authority.orders) == 1
    assert abs(office.state.ahead_seconds + days * DAY) < 5
    assert ("behind" if days < 0 else "ahead of") in office.keeper.note()
    assert f"{abs(days):.1f} days" in office.keeper.note()
    office.wrong_by = 0.0
    await office.runs(2 * DAY)
    assert office.keeper.note() == ""
    await office.runs_until(lambda: len(office.authority.orders) == 2, within=60 * DAY)


async def test_a_window_that_is_no_moment_ends_nothing(office: Office, clock: Clock) -> None:
    office.authority.suggests = lambda: (0.0, 0.0)
    for _ in range(3):
        window = {"suggestedWindow": {"start": "0001-01-01T00:00:00", "end": "0001-01-01T00:00:00"}}
        office.authority.faults.append(("/renewal/", office.authority._reply(200, window)))
    await office.runs(14 * HOUR)
    assert len(office.served) == 1 and office.state.trouble is None


# ── what must not be used any more ───────────────────────────────────────────────────────────────────────────────────


async def test_what_is_revoked_is_replaced_first_by_one_with_another_key(
    office: Office, clock: Clock
) -> None:
    await office.runs(60)
    wait = await office.keeper.revoke(1, at_once=False)
    await office.runs(60)
    assert len(office.served) == 2
    assert office.authority.revoked == [(office.served[0], 1, "account")]
    assert office.state.attempts >= wait and office.state.revoking == ""
    await office.runs(2 * DAY)
    assert len(office.served) == 2, "once is enough"


async def test_where_no_other_can_be_had_nothing_is_revoked_until_there_is_one(
    office: Office, clock: Clock
) -> None:
    await office.runs(60)
    office.authority.fault("/order", "rateLimited", 429, retry_after="7200")
    await office.keeper.revoke(1, at_once=False)
    await office.runs(HOUR)
    assert office.authority.revoked == []
    await office.another().begin()
    assert office.state.revoking
    await office.runs(3 * HOUR)
    assert office.authority.revoked == [(office.served[0], 1, "account")]
    assert office.served[-1] != office.served[0]


async def test_at_once_it_is_revoked_before_there_is_another(office: Office, clock: Clock) -> None:
    await office.runs(60)
    office.authority.fault("/order", "serverInternal", 500)
    await office.keeper.revoke(1, at_once=True)
    await office.runs(30)
    assert [reason for _, reason, _ in office.authority.revoked] == [1]
    assert len(office.served) == 1
    await office.runs(2 * PAUSES[0])
    assert len(office.served) == 2 and len(office.authority.revoked) == 1


async def test_a_crash_between_the_new_one_and_the_revocation_gets_no_third(
    office: Office, clock: Clock
) -> None:
    await office.runs(60)
    office.authority.fault("/revoke", "serverInternal", 500)
    await office.keeper.revoke(4, at_once=False)
    await office.runs(30)
    assert len(office.served) == 2 and office.authority.revoked == []
    await office.another().begin()
    await office.runs(60)
    assert len(office.authority.orders) == 2
    assert office.authority.revoked == [(office.served[0], 4, "account")]


async def test_a_revocation_that_is_refused_keeps_nothing_from_being_renewed(
    office: Office, clock: Clock
) -> None:
    await office.runs(60)
    for _ in range(10_000):
        office.authority.fault("/revoke", "malformed", 400)
    await office.keeper.revoke(4, at_once=False)
    await office.runs(2 * DAY)
    assert len(office.served) == len(office.authority.orders) == 2, (
        "it is got once, however often it is refused"
    )
    assert office.state.trouble is not None and office.state.revoking
    await office.runs(100 * DAY)
    assert office.state.serving is not None and office.state.serving.not_after > office.true_time()
    assert 3 <= len(office.authority.orders) <= 4


async def test_one_that_is_refused_is_not_forgotten_when_another_is_asked_for(
    office: Office, clock: Clock
) -> None:
    await office.runs(60)
    for _ in range(2):  # by the account, and by the next attempt
        office.authority.fault("/revoke", "serverInternal", 500)
    await office.keeper.revoke(4, at_once=False)
    await office.runs(30)
    assert len(office.served) == 2 and office.authority.revoked == []
    await office.keeper.revoke(1, at_once=False)
    await office.another().begin()
    await office.runs(HOUR)
    assert sorted(office.authority.revoked) == sorted(
        [(office.served[0], 4, "account"), (office.served[1], 1, "account")]
    )
    assert len(set(office.served)) == 3 and office.state.revoking == ""


async def test_after_a_crash_the_key_that_is_served_is_not_used_for_the_next_one(
    office: Office, clock: Clock
) -> None:
    kept = list[KeptOrder]()
    files = AcmeFiles(office.home)

    async def remember(shown: Sequence[ShownProof]) -> None:
        order = files.order()
        if shown and order is not None:
            kept.append(order)

    office.proofs.tell = remember
    await office.runs(60)
    files.keep_order(kept[0])  # as it stands when it ends between the two writes
    first = files.certificate()
    await office.keeper.revoke(1, at_once=False)
    await office.runs(60)
    second = files.certificate()
    assert first is not None and second is not None and len(office.served) == 2
    assert key_pem(first.key) == kept[0].key != key_pem(second.key)


@pytest.mark.parametrize(
    ("what", "authorization"),
    [
        ("other.example", {"identifier": {"type": "dns", "value": "other.example"}}),
        ("token", {"challenges": [{"type": "tls-alpn-01", "url": "u", "token": "../../x"}]}),
    ],
)
async def test_what_an_authority_wants_beside_what_was_ordered_is_not_proved(
    office: Office, clock: Clock, what: str, authorization: dict[str, Any]
) -> None:
    whole = {"identifier": {"type": "dns", "value": NAME}, "status": "pending", "challenges": []}
    office.authority.faults.append(("/authorizations/", office.authority._reply(200, whole | authorization)))
    await office.runs(10)
    assert office.state.trouble is not None and what in office.state.trouble.words


async def test_without_the_account_it_is_revoked_by_its_own_key(office: Office, clock: Clock) -> None:
    await office.runs(60)
    office.authority.accounts.clear()
    await office.keeper.revoke(1, at_once=True)
    await office.runs(60)
    assert office.authority.revoked == [(office.served[0], 1, "key")]
    assert len(office.served) == 2


async def test_what_was_revoked_already_is_as_good_as_revoked(office: Office, clock: Clock) -> None:
    await office.runs(60)
    office.authority.revoked.append((office.served[0], 0, "account"))
    await office.keeper.revoke(1, at_once=False)
    await office.runs(60)
    assert office.state.revoking == "" and office.state.trouble is None


async def test_somebody_who_asks_is_not_made_to_wait_for_the_next_attempt(
    office: Office, clock: Clock
) -> None:
    office.authority.down = True
    await office.runs(10 * HOUR)
    office.authority.down = False
    attempt = office.keeper.hurry()
    await office.runs(30)
    assert len(office.served) == 1 and office.state.attempts == attempt


async def test_without_a_certificate_there_is_nothing_to_revoke(office: Office, clock: Clock) -> None:
    with pytest.raises(LookupError):
        await office.keeper.revoke(0, at_once=False)


def test_a_trouble_is_a_sentence() -> None:
    assert str(CertificateTrouble("dns", "words", hint="do")) == "words"


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────

OF_A_NAME = (
    "dns", "connection", "tls", "unauthorized", "incorrectResponse", "caa", "rejectedIdentifier", "unsupportedIdentifier",
    "somethingNew",
)  # fmt: skip
OF_THE_REST = (
    "rateLimited", "externalAccountRequired", "userActionRequired", "accountDoesNotExist", "unauthorized", "invalidContact",
    "invalidProfile", "serverInternal", "badNonce", "alreadyRevoked", "somethingNew",
)  # fmt: skip


async def test_why_there_is_no_certificate_as_an_owner_reads_it(
    tmp_path: Path, clock: Clock, snapshot: Snapshot
) -> None:
    lines: list[str] = []

    def note(what: str, said: str, hint: str = "") -> None:
        told = said.replace(str(tmp_path), "~") + (f"\n  hint: {hint}" if hint else "")
        lines.append(f"{what}\n  {told}")

    for way in ("tls-alpn-01", "http-01"):
        for kind in OF_A_NAME if way == "tls-alpn-01" else ("connection",):
            found = trouble(kind, "its words", name=NAME, way=way)
            note(f"{kind}, of a name, by {way}", str(found), found.hint)
    for kind in OF_THE_REST:
        found = trouble(kind, "its words")
        note(kind, str(found), found.hint)
    wrong = {"identifier": {"type": "dns", "value": NAME}, "status": "pending", "challenges": []}
    for what, path, answer in (
        ("no ACME", "/directory", b"<html>hello</html>"),
        ("another name", "/authorizations/", {**wrong, "identifier": {"type": "dns", "value": "other.example"}}),
        ("a bad token", "/authorizations/", {**wrong, "challenges": [{"type": "tls-alpn-01", "url": "u", "token": "../x"}]}),
        ("another way", "/authorizations/", wrong),
        ("no account", "/account", {"status": "valid"}),
        ("no order", "/order", {"status": "pending", "authorizations": [], "finalize": "u"}),
        ("a bug", "/directory", RuntimeError("a bug")),
    ):  # fmt: skip
        office = Office(tmp_path / what)
        if isinstance(answer, dict):
            answer = office.authority._reply(201, answer)
        elif isinstance(answer, bytes):
            answer = acme_answer(200, answer)
        office.authority.faults.append((path, answer))
        await office.runs(10)
        note(what, office.state.trouble.words, office.state.trouble.hint)
    office = Office(tmp_path)
    office.authority.external_accounts = {"kid-1": "c2VjcmV0"}
    office.eab = ExternalAccount("kid-1", "no base64")
    await office.runs(10)
    note("a customer's key that is none", office.state.trouble.words, office.state.trouble.hint)
    office.authority.external_accounts.clear()
    office.eab = None
    office.authority.life_seconds = 10 * DAY
    note("none yet", office.another().note())
    await office.runs(2 * HOUR)
    office.authority.down = True
    await office.runs(8 * DAY)
    note("it cannot be renewed", office.keeper.note())
    await office.runs(3 * DAY)
    note("it is over", office.keeper.note())
    files = AcmeFiles(office.home)
    for damaged, read in (("account.json", files.accounts), ("certificate.pem", files.certificate)):
        (office.home / "acme" / damaged).write_text("{", "ascii")
        with pytest.raises(CannotKeep) as refused:
            read()
        note(f"{damaged} that is damaged", str(refused.value), refused.value.hint or "")
    snapshot("certificates", "\n".join(lines))
