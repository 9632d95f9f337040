"""`scripts/chaos --nodes N`: N servers on one PostgreSQL with a standby, callers who come to any of them, and one fault after the other.

After each it is waited until every node writes again; then everybody pauses, and what they were told is compared with what is there.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from threading import Event, Thread

import accounts
from accounts import Rows
from buyers import Buyer, TestFacilitator
from cluster import Cluster, Entrance, Gate, Tally
from customers import Payer, Poster, Walker, compare_balances, compare_runs, read_journal
from databases import Databases
from durability_clients import Refresher, Tasker, Witness, settle, sum_books
from faults import BEFORE_SECONDS, Fault, Turmoil, plan
from multi_node_clients import Accepted, Asker, Canary, KeyLeaver, Leaver, Notices, Prober
from network_faults import Cables, cables, enter_namespace
from targets import Broken

NAMES = "abcdefghij"
READY_SECONDS = 90.0
PAUSE_SECONDS = 150.0  # until nobody has anything under way
# What is promised of a login that was ended: at once, but where a node could not hear of it.
HEARD_SECONDS, FORGIVEN_SECONDS = 1.0, 5.0
GRANTED = 1_000_000  # dollars
SHOWN = 8
MOST_FRAMES = 8
# Of a worker that was killed, or could not start while there was no database. That another takes its place is waited for.
EXPECTED = re.compile(r'"event":"worker\.ended"|"worker":.*"event":"store\.stopped"')


def run(
    nodes: int,
    faults: int,
    seed: int,
    command: Sequence[str],
    *,
    seconds: float,
    keep: Path | None,
    proxies: bool,
) -> int:
    """`keep`: where everything is left to be looked at; else nothing is left. `proxies`: also where namespaces may be made."""
    if not proxies:
        enter_namespace()
    with ExitStack() as stack:
        if keep is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ostiary-chaos-")))
        else:
            (home := keep.resolve()).mkdir(parents=True)
        names = NAMES[:nodes]
        workers = {name: 2 if number == 1 else 1 for number, name in enumerate(names)}
        network = cables(names)
        stack.callback(network.close)
        print(f"seed {seed}; {network.how}", flush=True)
        databases = Databases(home, network)
        stack.callback(databases.close)
        databases.make()
        facilitator = TestFacilitator(command, home, network, names)
        stack.callback(facilitator.close)
        facilitator.start()
        cluster = Cluster(command, home, databases, network, workers, facilitator.url)
        stack.callback(cluster.close)
        storm = Storm(cluster, databases, network, facilitator, seed)
        storm.begin()
        try:
            storm.pass_over(plan(faults, seed, workers, network), time.monotonic() + seconds)
        except Broken as problem:  # what is known by then is told
            storm.note(str(problem))
        return 0 if storm.end() else 1


class Storm:
    def __init__(
        self, cluster: Cluster, databases: Databases, network: Cables, facilitator: TestFacilitator, seed: int
    ) -> None:
        self._cluster, self._databases, self._facilitator = cluster, databases, facilitator
        self._turmoil = Turmoil(cluster, databases, network)
        self._gate, self._over, self._notices, self._tally = Gate(), Event(), Notices(), Tally()
        dice = [Random(f"{seed} {number}") for number in range(40)]
        entrance = Entrance(cluster.nodes, dice.pop(), self._tally)
        self._witnesses: list[Witness] = []
        kinds: tuple[tuple[Callable[..., Witness], int], ...] = (
            (Refresher, 3), (Walker, 2), (Payer, 2), (Poster, 1), (Buyer, 2), (Asker, 2), (Tasker, 1)
        )  # fmt: skip
        for kind, count in kinds:
            for number in range(count):
                name = f"{getattr(kind, '__name__', 'client').lower()}{number}"
                self._witnesses.append(kind(entrance, dice.pop(), self._over, name))
        for number in range(2):
            self._witnesses.append(Leaver(entrance, dice.pop(), self._over, f"leaver{number}", self._notices))
        self._witnesses.append(KeyLeaver(entrance, dice.pop(), self._over, "keys", self._notices))
        self._canaries = [Canary(node, entrance, dice.pop(), self._over) for node in cluster.nodes]
        self._witnesses += self._canaries
        self._probers = [Prober(node, self._notices, dice.pop(), self._over) for node in cluster.nodes]
        for witness in self._witnesses:
            witness.between = self._gate.go_through
        self._threads = [Thread(target=each.run, daemon=True) for each in (*self._witnesses, *self._probers)]
        self._wrong: list[str] = []
        self._outages: dict[str, list[float]] = {}
        self._judged_accepted = 0
        self._run_again = 0
        self._latest = 0.0

    def begin(self) -> None:
        self._cluster.start()
        given = self._cluster.nodes[0].run("ledger", "grant", "owner", f"${GRANTED}", "--yes")
        if given.returncode:
            raise Broken(f"nothing could be granted: {given.stderr}")
        for thread in self._threads:
            thread.start()
        self._await_ready(time.monotonic())
        self._judge("the beginning")

    def note(self, what: str) -> None:
        """One more thing that is wrong."""
        self._wrong.append(what)

    def pass_over(self, faults: Sequence[Fault], until: float) -> None:
        for number, fault in enumerate(faults, 1):
            if time.monotonic() > until:
                print(f"time is over after {number - 1} faults of {len(faults)}")
                return
            time.sleep(BEFORE_SECONDS)
            for canary in self._canaries:
                canary.gap = 0.0
            begun = time.monotonic()
            print(f"fault {number:3d}, {fault.kind} … ", end="", flush=True)
            where = self._turmoil.commit(fault)
            over = time.monotonic()
            self._await_ready(over)
            ready = time.monotonic()
            outage = max(canary.gap for canary in self._canaries)
            self._outages.setdefault(fault.kind, []).append(outage)
            self._turmoil.follow_up(fault)
            wrong = self._judge(f"fault {number}, {fault.kind} {where}")
            print(
                f"{where}: {over - begun:.1f} s long, all ready {ready - over:.1f} s later,"
                f" longest without a write {outage:.1f} s{'' if not wrong else f'; {wrong} WRONG'}",
                flush=True,
            )
            for what in self._wrong[len(self._wrong) - wrong :]:
                print(f"  {what}", flush=True)

    def end(self) -> bool:
        self._over.set()
        for thread in self._threads:
            thread.join(PAUSE_SECONDS)
            if thread.is_alive():
                raise Broken("a client still waits for an answer")
        self._wrong += settle(self._witnesses)
        books = self._compare("the end")
        accounts.tell(books)
        self._verify()
        codes = [node.end() for node in self._cluster.nodes]
        if any(codes):
            self._wrong.append(f"the nodes ended with {codes}")
        for node in self._cluster.nodes:
            for line in [
                line
                for line in node.said().splitlines()
                if '"level":"error"' in line and not EXPECTED.search(line)
            ][:SHOWN]:
                self._wrong.append(f"the log of {node.name}: {line[:400]}")
        self._print_figures()
        for what in self._wrong:
            print(f"VIOLATED {what}")
        print(
            "verdict: "
            + ("nothing is missing, doubled or late" if not self._wrong else f"{len(self._wrong)} violations")
        )
        return not self._wrong

    # ------------------------------------------------------------ waiting

    def _await_ready(self, since: float) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            self._look_at_witnesses()
            late = [canary.node.name for canary in self._canaries if canary.acknowledged_at < since]
            few = [
                node.name
                for node in self._cluster.nodes
                if node.workers > 1 and len(node.worker_pids()) < node.workers
            ]
            if not late and not few:
                return
            if time.monotonic() > until:
                raise Broken(
                    f"not ready after {READY_SECONDS:.0f} seconds: {late} write nothing, {few} lack a worker"
                )
            time.sleep(0.05)

    def _look_at_witnesses(self) -> None:
        for witness in self._witnesses:
            if witness.problem is not None:
                raise Broken(f"{witness.name}: {witness.problem!r}") from witness.problem

    # ------------------------------------------------------------ judging

    def _judge(self, when: str) -> int:
        """How much is wrong that was not before."""
        before = len(self._wrong)
        with self._gate.closed(len(self._witnesses), PAUSE_SECONDS) as still:
            self._look_at_witnesses()
            if not still:
                raise Broken(f"after {when}: somebody still waits for an answer\n{self._who_waits()}")
            self._compare(when)
            self._judge_accepted()
            for canary in self._canaries:
                canary.forget()
        return len(self._wrong) - before

    def _who_waits(self) -> str:
        """Where each of them is that is not at the gate."""
        frames, said = sys._current_frames(), list[str]()  # pyright: ignore[reportPrivateUsage]
        for witness, thread in zip(self._witnesses, self._threads, strict=False):
            lines = traceback.format_stack(frames[thread.ident or 0]) if thread.is_alive() else []
            if lines and not any(" in go_through" in line for line in lines):
                said.append(f"{witness.name}:\n{''.join(lines[-MOST_FRAMES:])}")
        return "\n".join(said)

    def _compare(self, when: str) -> dict[str, accounts.Book]:
        books = sum_books(self._witnesses)
        with self._databases.looked_at() as connection:
            rows = Rows(lambda query: connection.execute(query.encode()))
            books["audit rows"] = accounts.compare(rows, self._cluster.notes, self._witnesses, books)
            compare_balances(rows, self._witnesses, GRANTED, books["paid calls"])
            self._compare_payments(rows, books[Buyer.noun])
        self._compare_journal(books)
        for noun, book in books.items():
            for what in (
                *(f"MISSING {each}" for each in book.missing),
                *(f"DOUBLED {each}" for each in book.doubled),
            ):
                said = f"{noun}: {what}"
                if not any(said in known for known in self._wrong):
                    self._wrong.append(f"{said} (after {when})")
        return books

    def _compare_payments(self, rows: Rows, book: accounts.Book) -> None:
        """Each call that was served is paid for, nothing else is, and the books say what moved."""
        settled = {(each.payer, each.nonce): each.amount for each in self._facilitator.settled()}
        for buyer in self._buyers():
            payer = buyer.wallet.address.lower()
            paid = {nonce for found, nonce in settled if found == payer}
            book.missing += [
                f"{name} was served, and its payment was not settled"
                for name, nonce in buyer.served.items()
                if nonce not in paid
            ]
            accounts.differ(len(paid), len(buyer.served), book, f"settled payments of {buyer.name}")
        booked = rows.counted(
            "SELECT p.payer || ' ' || p.nonce, COUNT(*) FROM movements m JOIN payments p ON p.id = m.payment_id"
            " GROUP BY p.payer, p.nonce"
        )
        for payer, nonce in settled:
            accounts.differ(
                booked.pop(f"{payer} {nonce}", 0), 1, book, f"movements of {nonce}, beside what was settled,"
            )
        book.doubled += [f"{each} is in the books, and was not settled" for each in booked]
        unsettled = rows.one("SELECT COUNT(*) FROM payments WHERE state IN ('settling', 'unknown')")
        accounts.differ(int(unsettled), 0, book, "payments without an outcome")

    def _buyers(self) -> Sequence[Buyer]:
        return [each for each in self._witnesses if isinstance(each, Buyer)]

    def _compare_journal(self, books: dict[str, accounts.Book]) -> None:
        done = read_journal(self._cluster.journal)
        compare_runs(done, self._witnesses, books)
        book = books[Buyer.noun]
        for buyer in self._buyers():
            book.missing += [f"{name} was served, and not run" for name in buyer.served if not done[name]]
            book.doubled += [
                f"{name} was run {done[name]} times"
                for name in (*buyer.served, *buyer.unknown)
                if done[name] > 1
            ]

    def _judge_accepted(self) -> None:
        with self._notices.lock:
            found, self._judged_accepted = (
                self._notices.accepted[self._judged_accepted :],
                len(self._notices.accepted),
            )
        for each in found:
            beyond = self._beyond(each)
            if beyond > 0:
                self._wrong.append(
                    f"{each.what} was let in at {each.node} {each.late:.2f} s after its end was acknowledged,"
                    f" {beyond:.2f} s later than allowed{self._around(each)}"
                )

    def _beyond(self, each: Accepted) -> float:
        """How many seconds after the last moment at which it was still allowed; 0: it was allowed."""
        windows = [window for window in self._turmoil.windows if window.node in (None, each.node)]
        allowed = [(each.ended, each.ended + HEARD_SECONDS)]
        for window in windows:
            end = window.end if window.end is not None else each.answered
            allowed += [(window.begin, min(end, window.begin + FORGIVEN_SECONDS)), (end, end + HEARD_SECONDS)]
        self._latest = max(self._latest, each.late)
        if any(first <= each.answered and each.sent <= last for first, last in allowed):
            return 0.0
        return min(each.sent - last for _, last in allowed if last < each.sent)

    def _around(self, each: Accepted) -> str:
        for window in reversed(self._turmoil.windows):
            if window.node in (None, each.node) and window.begin <= each.sent and window.end is not None:
                begun, over = each.sent - window.begin, each.sent - window.end
                return f", {begun:.2f} s after the begin and {over:.2f} s after the end of: {window.what}"
        return ""

    def _verify(self) -> None:
        for node in self._cluster.nodes:
            for words in (("verify",), ("ledger", "check")):
                done = node.run(*words)
                said = (done.stdout or done.stderr).strip().splitlines()
                print(f"ostiary {' '.join(words)} at {node.name}: {said[0] if said else ''}")
                if done.returncode:
                    self._wrong.append(f"ostiary {' '.join(words)} at {node.name}: {' '.join(said)[:400]}")

    # ------------------------------------------------------------ figures

    def _print_figures(self) -> None:
        print("\noperations:")
        for kind, outcomes in sorted(self._tally.counted.items()):
            print(f"  {kind:24} " + ", ".join(f"{name} {count}" for name, count in outcomes.most_common()))
        print("\nlongest without an acknowledged write at a node, by kind of fault:")
        for kind, outages in sorted(self._outages.items()):
            print(f"  {kind:24} {max(outages):5.1f} s, of {len(outages)}")
        payers = [each for each in self._witnesses if isinstance(each, Payer)]
        askers = [each for each in self._witnesses if isinstance(each, Asker)]
        print(
            f"\nended logins: refused {self._notices.refused} times, let in {len(self._notices.accepted)} times,"
            f" the latest {self._latest:.2f} s after the end was acknowledged"
        )
        print(
            f"calls with a key of which nobody knows how far they came: {sum(len(each.unknown) for each in payers)}"
        )
        print(
            f"tasks that were at work when their node was killed, and say so: {sum(each.interrupted for each in askers)};"
            f" of which nobody knows whether they were begun: {sum(each.lost for each in askers)};"
            f" longest from an answer to the end of its task {max(each.longest for each in askers):.1f} s"
        )
