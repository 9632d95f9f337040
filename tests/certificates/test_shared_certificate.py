"""server/certificates/shared_certificate.py: one certificate for several nodes, got by one of them; proofs that any of them shows; nodes that die, lag, and find
rows that were damaged. One store, a clock that jumps, an authority in memory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from structlog.testing import CapturingLogger

from server.certificates.certificate_files import AcmeFiles, KeptInFiles
from server.certificates.certificate_keeper import CertificateKeeper, CertificatePlan
from server.certificates.certificate_rows import AcmeVault
from server.certificates.copy_back_to_files import bring_back
from server.certificates.kept_certificates import CannotKeep, IssuedCertificate
from server.certificates.name_proofs import Proofs
from server.certificates.shared_certificate import LEAD_SOON_SECONDS, SharedKeeper
from server.certificates.shared_records import PROOFS_MILLIS, SHOWN_SECONDS
from server.store import task_leases
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StoreDb
from tests.certificates.fake_authority import DAY, DIRECTORY, FakeAuthority, looking_at, serial_of

NAME = "agent.example.org"
START = 1_800_000_000.0
Clock = trio.testing.MockClock


def wall() -> float:
    return START + trio.current_time()


def subkey(purpose: str) -> bytes:
    return purpose.encode().ljust(32, b"-")


@dataclass
class Node:
    """One of them, with all that it has of its own."""

    town: Town
    name: str
    proofs: Proofs = field(default_factory=Proofs)
    served: list[str] = field(default_factory=list)  # serials
    lines: CapturingLogger = field(default_factory=CapturingLogger)

    def __post_init__(self) -> None:
        wrapper = structlog.make_filtering_bound_logger(0)
        log: Any = structlog.wrap_logger(self.lines, processors=[], wrapper_class=wrapper, context_class=dict)

        def make(kept: Any, take: Callable[[IssuedCertificate], object]) -> CertificateKeeper:
            return CertificateKeeper(
                self.town.plan, kept, self.proofs, self.town.authority, log, take=take, clock=wall, spread=lambda: 0.5
            )  # fmt: skip

        self.keeper = SharedKeeper(
            self.town.plan,
            self.town.store,
            AcmeVault(subkey, os.urandom),
            self.proofs,
            log,
            boot_id=self.name,
            node=f"machine-{self.name}",
            make=make,
            take=lambda issued: self.served.append(serial_of(issued.chain)),
            before=self.town.before,
            clock=wall,
        )
        self.town.store.on_changes(self.keeper.apply_changes)

    def said(self, event: str) -> list[dict[str, Any]]:
        return [call.kwargs for call in self.lines.calls if call.kwargs["event"] == event]


@dataclass
class Town:
    """What all of them have in common."""

    store: InlineStore
    home: Path
    plan: CertificatePlan = field(
        default_factory=lambda: CertificatePlan(names=(NAME,), directory=DIRECTORY, ways=("tls-alpn-01",))
    )
    looks_at: Callable[[], list[Proofs]] = list
    looks: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    runs: dict[str, trio.CancelScope] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authority = FakeAuthority(clock=wall, look=self._look)

    async def _look(self, way: str, name: str, token: str, authorized: str) -> tuple[str, str] | None:
        """At every node that the authority may come to, and each of them is to know."""
        for proofs in self.looks_at() or [node.proofs for node in self.nodes.values()]:
            self.looks.append(way)
            refusal = (
                await looking_at(proofs)(way, name, token, authorized)
                if proofs or way == "http-01"
                else ("unauthorized", "nothing is shown")
            )
            if refusal is not None:
                return refusal
        return None

    def before(self) -> AcmeFiles | None:
        return AcmeFiles(self.home) if (self.home / "acme").is_dir() else None

    async def enter(self, name: str) -> Node:
        await self.store.write(lambda db: _enter(db, name))
        self.nodes[name] = Node(self, name)
        return self.nodes[name]

    async def serve(self, name: str) -> Node:
        """From its start on, in a task of its own."""
        node = await self.enter(name)
        await node.keeper.begin()
        scope = self.runs[name] = trio.CancelScope()

        async def live() -> None:
            with scope:
                await node.keeper.run()

        self.nursery.start_soon(live)
        return node

    async def found_dead(self, name: str) -> None:
        """By the others; whether it is or not."""
        await self.store.write(lambda db: db.execute("DELETE FROM nodes WHERE boot_id = ?", name))
        await self.store.write(task_leases.end_left)
        for node in self.nodes.values():
            if node.name != name:
                node.keeper.look_for_left()

    async def die(self, name: str) -> None:
        self.runs[name].cancel()
        del self.nodes[name]
        await self.found_dead(name)

    async def rows(self) -> dict[str, str]:
        found = await self.store.read(lambda db: db.fetch_all("SELECT what, sealed FROM acme_kept"))
        return {row["what"]: row["sealed"] for row in found}

    async def damage(self, what: str) -> None:
        def job(db: StoreDb) -> None:
            db.execute(
                "UPDATE acme_kept SET sealed = 'AAAA' || sealed, version = version + 1 WHERE what = ?", what
            )
            db.changed("certificate", what)

        await self.store.write(job)

    nursery: trio.Nursery = field(init=False)


def _enter(db: StoreDb, name: str) -> None:
    db.execute(
        "INSERT INTO nodes (boot_id, name, home, address, version, started_at, alive_until)"
        " VALUES (?, ?, ?, '', '', 0, 0)",
        name,
        name,
        name,
    )


@pytest.fixture
def clock(autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that jumps does not wait for threads: what would be done in one is done in place."""

    async def in_place(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", in_place)
    return autojump_clock


@asynccontextmanager
async def town(tmp_path: Path) -> AsyncGenerator[Town]:
    async with (
        open_inline_store(clock=lambda: round(wall() * 1000)) as store,
        trio.open_nursery() as nursery,
    ):
        found = Town(store=store, home=tmp_path)
        found.nursery = nursery
        yield found
        nursery.cancel_scope.cancel()


async def test_one_node_gets_the_certificate_and_all_of_them_serve_it(tmp_path: Path, clock: Clock) -> None:
    async with town(tmp_path) as here:
        one, two, three = [await here.serve(name) for name in ("a", "b", "c")]
        assert not two.keeper.has_one
        await trio.sleep(60)
        assert len(here.authority.orders) == len(here.authority.accounts) == 1
        assert one.served == two.served == three.served
        assert [node.keeper.leads for node in (one, two, three)] == [True, False, False]
        assert two.keeper.note() == ""
        seen, told = one.keeper.described(), two.keeper.described()
        assert told == seen and told["renews_at"] is not None and told["attempts"] == 1
        late = await here.serve("d")
        assert late.served == two.served, "whoever comes later has it before anybody connects"
        assert two.said("certificate.taken_over") and not one.said("certificate.taken_over")
        assert not (tmp_path / "acme").exists()


@pytest.mark.parametrize("way", ["tls-alpn-01", "http-01"])
async def test_a_proof_is_shown_by_every_node_before_the_authority_is_asked_to_look(
    tmp_path: Path, clock: Clock, way: str
) -> None:
    async with town(tmp_path) as here:
        here.plan = CertificatePlan(names=(NAME, "mcp.example.org"), directory=DIRECTORY, ways=(way,))
        nodes = [await here.serve(name) for name in ("a", "b", "c")]
        await trio.sleep(60)
        assert here.looks == [way] * 6, "at three nodes, for two names"
        assert all(node.served for node in nodes)
        assert here.authority.orders[0].errors == {}
        assert not any(node.proofs for node in nodes), "nothing is shown any longer than it is looked at"
        assert all(node.proofs.key_authorization(token) is None for node in nodes
                   for token in here.authority.orders[0].tokens.values())  # fmt: skip


async def test_a_node_that_lives_and_shows_nothing_is_waited_for_and_holds_up_nobody_for_ever(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        await here.enter("deaf")
        here.looks_at = lambda: [here.nodes["a"].proofs]
        one = await here.serve("a")
        await trio.sleep(SHOWN_SECONDS - 1)
        assert here.looks == []
        await trio.sleep(30)
        assert len(one.served) == 1


async def test_proofs_that_nobody_takes_away_are_over_by_themselves(tmp_path: Path, clock: Clock) -> None:
    async with town(tmp_path) as here:
        await here.serve("a")
        two = await here.serve("b")
        stopped = trio.Event()

        async def look(way: str, name: str, token: str, authorized: str) -> None:
            stopped.set()
            await trio.sleep_forever()

        here.authority.look = look
        await stopped.wait()
        assert two.proofs
        # The one that proved is killed, and could not take anything away; nobody has found it dead.
        here.nodes["a"].proofs.tell = _unheard
        here.runs["a"].cancel()
        await trio.sleep(PROOFS_MILLIS / 1000 - 30)
        assert two.proofs
        await trio.sleep(60)
        assert not two.proofs


async def test_each_is_renewed_once_and_the_new_one_is_served_everywhere(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        here.authority.life_seconds = DAY
        one, two = await here.serve("a"), await here.serve("b")
        await trio.sleep(2.2 * DAY)
        assert len(here.authority.orders) == 4
        assert len(two.served) == 4 and one.served == two.served


async def test_the_next_node_goes_on_with_the_order_of_one_that_died_and_asks_for_no_second_one(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        await here.serve("a")
        two = await here.serve("b")
        reached, look = trio.Event(), here.authority.look

        async def hang(way: str, name: str, token: str, authorized: str) -> None:
            reached.set()
            await trio.sleep_forever()

        here.authority.look = hang
        await reached.wait()
        here.authority.look = look
        began = trio.current_time()
        await here.die("a")
        await trio.sleep(60)
        assert two.keeper.leads and len(two.served) == 1
        assert trio.current_time() - began < LEAD_SOON_SECONDS + 1
        assert len(here.authority.orders) == len(here.authority.accounts) == 1
        assert two.keeper.described()["attempts"] == 2, "the one that broke off is over as well"


async def test_who_was_taken_for_dead_writes_nothing_any_more_and_serves_what_the_other_got(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        one = await here.serve("a")
        two = await here.serve("b")
        held, go_on, look = trio.Event(), trio.Event(), here.authority.look

        async def slow(way: str, name: str, token: str, authorized: str) -> tuple[str, str] | None:
            held.set()
            await go_on.wait()
            return await look(way, name, token, authorized)

        here.authority.look = slow
        await held.wait()
        here.authority.look = look
        await here.found_dead("a")
        await trio.sleep(30)
        assert two.keeper.leads and len(two.served) == 1
        go_on.set()
        await trio.sleep(300)
        assert not one.keeper.leads
        assert one.served == two.served and len(two.served) == 1
        assert one.keeper.described() == two.keeper.described()


async def test_a_node_that_may_be_taken_for_dead_lets_go_at_once_and_goes_on_if_nobody_took_over(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        one = await here.serve("a")
        await trio.sleep(60)
        one.keeper.let_go()
        await trio.sleep(1)
        assert not one.keeper.leads and one.keeper.has_one
        await trio.sleep(LEAD_SOON_SECONDS)
        assert one.keeper.leads and len(here.authority.orders) == 1


async def test_whoever_asks_at_any_node_has_it_renewed_and_revoked_by_the_one_that_does(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        one, two = await here.serve("a"), await here.serve("b")
        await trio.sleep(60)
        assert await two.keeper.renew() == 2
        await trio.sleep(60)
        assert two.keeper.described()["attempts"] == 2 and len(two.served) == 2
        assert await one.keeper.renew() == 3
        await trio.sleep(60)
        assert await two.keeper.revoke(1, at_once=False) == 4
        await trio.sleep(60)
        assert [(serial, reason) for serial, reason, _ in here.authority.revoked] == [(two.served[2], 1)]
        assert len(two.served) == 4 and two.keeper.described()["revoking"] == ""
        assert len(here.authority.orders) == 4
        await trio.sleep(DAY)
        assert len(here.authority.orders) == 4, "a wish is fulfilled once"


async def test_what_was_asked_for_where_nobody_could_do_it_is_done_by_the_next_one(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        await here.serve("a")
        two = await here.serve("b")
        await trio.sleep(60)
        here.runs["a"].cancel()
        await trio.testing.wait_all_tasks_blocked()
        await two.keeper.revoke(4, at_once=False)
        await trio.sleep(600)
        assert here.authority.revoked == []
        await here.die("a")
        await trio.sleep(60)
        assert len(here.authority.revoked) == 1 and len(two.served) == 2


async def test_more_is_not_revoked_at_once_than_there_is_room_for(tmp_path: Path, clock: Clock) -> None:
    async with town(tmp_path) as here:
        one = await here.serve("a")
        await trio.sleep(60)
        for number in range(16):
            await here.store.write(
                lambda db, what=f"revocation:{number}": db.execute(
                    "INSERT INTO acme_kept (what, sealed, version) VALUES (?, '', 1)", what
                )
            )
        with pytest.raises(CannotKeep, match="16 certificates wait"):
            await one.keeper.revoke(0, at_once=False)


async def test_a_certificate_that_was_damaged_is_told_of_and_the_one_of_before_is_served(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        await here.serve("a")
        two = await here.serve("b")
        await trio.sleep(60)
        await here.damage("certificate")
        await trio.sleep(60)
        assert len(two.served) == 1
        assert "was sealed with another key file; the one of before is served" in two.keeper.note()
        assert len(two.said("certificate.not_taken_over")) == 1, "once"
        late = await here.enter("c")
        with pytest.raises(CannotKeep, match="acme_kept cannot be read") as refused:
            await late.keeper.begin()
        assert refused.value.hint.startswith("DELETE FROM acme_kept WHERE what = 'certificate'")
        del here.nodes["c"]
        await here.found_dead("c")
        await two.keeper.renew()
        await trio.sleep(60)
        assert len(two.served) == 2 and two.keeper.note() == "", "another one mends it"


@pytest.mark.parametrize("what", ["proofs", "state"])
async def test_other_rows_that_were_damaged_end_nothing_and_are_made_anew(
    tmp_path: Path, clock: Clock, what: str
) -> None:
    async with town(tmp_path) as here:
        one, two = await here.serve("a"), await here.serve("b")
        await trio.sleep(60)
        await here.damage(what)
        await trio.sleep(60)
        assert f'under "{what}"' in two.keeper.note() and len(two.served) == 1
        if what == "state":
            with pytest.raises(CannotKeep):
                await two.keeper.renew()
            one.keeper._keeper.hurry()  # type: ignore[union-attr]
        else:
            await two.keeper.renew()
        await trio.sleep(60)
        assert len(two.served) == 2 and two.keeper.note() == ""


async def test_an_authority_that_wants_to_be_left_alone_is_left_alone_by_the_next_node_too(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path) as here:
        here.authority.fault("/order", "rateLimited", 429, retry_after="36000")
        await here.serve("a")
        two = await here.serve("b")
        await trio.sleep(60)
        assert "too many requests" in two.keeper.note()
        assert two.keeper.described()["trouble"]["attempts"] == 1
        asked = len(here.authority.asked)
        await here.die("a")
        await trio.sleep(35_000)
        assert two.keeper.leads and len(here.authority.asked) == asked
        assert "too many requests" in two.keeper.note()
        await trio.sleep(3_600)
        assert len(two.served) == 1


async def test_what_a_server_had_that_was_alone_until_now_is_taken_along(
    tmp_path: Path, clock: Clock
) -> None:
    async with town(tmp_path / "elsewhere") as other:
        await other.serve("a")
        await trio.sleep(60)
        kept = other.nodes["a"].keeper._kept
        assert kept is not None
        issued, account = await kept.certificate(), await kept.account(DIRECTORY)
    assert issued is not None and account is not None
    tmp_path.chmod(0o700)
    files = AcmeFiles(tmp_path)
    files.keep_certificate(issued)
    files.keep_account(DIRECTORY, account)
    async with town(tmp_path) as here:
        one, two = await here.serve("a"), await here.serve("b")
        await trio.sleep(60)
        assert here.authority.orders == []
        assert one.served == two.served == [serial_of(issued.chain)]
        found = one.keeper._kept
        assert found is not None and await found.account(DIRECTORY) == account


def brought_back(
    home: Path, told: Callable[[str], None], *, directories: Sequence[str] = ()
) -> Callable[[StoreDb], None]:
    vault = AcmeVault(subkey, os.urandom)
    return partial(bring_back, vault=vault, data_dir=home, directories=directories, told=told)


async def test_who_is_alone_again_serves_what_the_nodes_had_and_so_do_nodes_that_come_after(
    tmp_path: Path, clock: Clock
) -> None:
    told: list[str] = []
    async with town(tmp_path) as here:
        one = await here.serve("a")
        await trio.sleep(60)
        await here.die("a")
        await here.store.write(brought_back(tmp_path, told.append))
        assert (await here.rows(), told) == ({}, [])
        proofs, served = Proofs(), list[str]()
        alone = CertificateKeeper(
            here.plan, KeptInFiles(AcmeFiles(tmp_path)), proofs, here.authority, one.keeper._log,
            take=lambda issued: served.append(serial_of(issued.chain)), clock=wall, spread=lambda: 0.5,
        )  # fmt: skip
        await alone.begin()
        assert served == one.served
        with trio.move_on_after(60):
            await alone.run()
        later = await here.serve("b")
        await trio.sleep(60)
        assert later.served == one.served
        assert len(here.authority.orders) == len(here.authority.accounts) == 1


async def test_what_is_to_be_revoked_goes_along_and_a_move_that_was_cut_off_is_made_again(
    tmp_path: Path, clock: Clock
) -> None:
    told: list[str] = []
    async with town(tmp_path) as here:
        one = await here.serve("a")
        await trio.sleep(60)
        await here.die("a")
        other = await here.enter("b")
        await other.keeper.begin()
        await other.keeper.revoke(4, at_once=True)  # and nobody is there who does it
        before, job = await here.rows(), brought_back(tmp_path, told.append)

        def cut_off(db: StoreDb) -> None:
            job(db)
            raise InterruptedError

        with pytest.raises(InterruptedError):
            await here.store.write(cut_off)
        assert await here.rows() == before
        await here.store.write(job)
        assert (await here.rows(), told) == ({}, [])
        files = AcmeFiles(tmp_path)
        issued = files.certificate()
        assert issued is not None
        assert serial_of(issued.chain) == one.served[-1]
        (revocation,) = files.revocations()
        assert (revocation.fingerprint, revocation.reason) == (issued.facts.fingerprint, 4)
        assert list(files.accounts()) == [DIRECTORY]
        assert (files.order(), files.rest()) == (None, None)


async def test_what_was_damaged_is_told_of_and_left_behind_when_nodes_become_one_server(
    tmp_path: Path, clock: Clock
) -> None:
    told: list[str] = []
    async with town(tmp_path) as here:
        await here.serve("a")
        await trio.sleep(60)
        await here.die("a")
        await here.damage("certificate")
        await here.store.write(brought_back(tmp_path, told.append, directories=[DIRECTORY]))
        (words,) = told
        assert '"certificate" of acme_kept cannot be read' in words
        files = AcmeFiles(tmp_path)
        assert files.certificate() is None
        assert list(files.accounts()) == [DIRECTORY]
        assert await here.rows() == {}


async def test_nodes_without_a_certificate_leave_no_folder_for_it(tmp_path: Path, clock: Clock) -> None:
    async with town(tmp_path) as here:
        await here.store.write(brought_back(tmp_path, lambda words: pytest.fail(words)))
        assert not (tmp_path / "acme").exists()


async def test_nothing_of_it_lies_in_the_database_in_clear(tmp_path: Path, clock: Clock) -> None:
    async with town(tmp_path) as here:
        here.authority.fault("/finalize", "serverInternal", 500)
        one = await here.serve("a")
        await trio.sleep(5)
        assert one.served == []
        rows = await here.rows()
        assert {what.partition(":")[0] for what in rows} == {"account", "order", "proofs", "state"}
        await trio.sleep(600)
        assert one.served
        rows |= await here.rows()
        assert "certificate" in rows
        for text in rows.values():
            assert not any(word in text for word in ("PRIVATE", "BEGIN", NAME, "jwk", "{"))
        with pytest.raises(CannotKeep):
            AcmeVault(lambda _: bytes(32), os.urandom).open(
                await here.store.read(lambda db: _row(db, "certificate"))
            )


async def _unheard(_: object) -> None:
    pass


def _row(db: StoreDb, what: str) -> Any:
    from server.certificates.certificate_rows import get

    return get(db, what)
