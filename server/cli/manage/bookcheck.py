"""The check whether the books are right, of the running server or of a file, for `ostiary verify` and `ostiary ledger check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from server.cli import local, spans, terminal
from server.lib.counted import counted

if TYPE_CHECKING:
    from server.cli.manage.unserved_store import UnservedStore

# What is wrong with a row (of the trail) or a movement (of the ledger).
TROUBLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "altered": "{row} {seq} is not as it was written",
        "missing": "{row} {seq} is missing",
        "added": "{row} {seq} was put in by somebody else",
        "cut off": "{row} {seq} was written once, and the {chain} ends before it: its end was cut off, or the database was swapped for an"
        " older copy",
        "another": "{row} {seq} is another than the one that was written once: the end of the {chain} was exchanged, or the database",
        "record altered": "the record of where the {chain} ends was altered, removed or put back to an older one, by {row} {seq} at the"
        " latest",
        "no record": "the record of where the {chain} ends was removed, by {row} {seq} at the latest",
    }
)
# Of what is wrong with balances, what is told; the number of the rest is.
TOLD: Final = 10
HEAD_DIGITS: Final = 16
COMPARE: Final = "compare with a back-up: ostiary verify --file BACKUP"
WHAT_NOW: Final = f'{COMPARE}; once it is known what it was: ostiary verify --acknowledge "WHY"'


def of_server(expected: tuple[int, str] | None = None) -> dict[str, Any]:
    """Check all of it, piece by piece."""
    whole = _nothing()
    for piece in local.pieces("ledger.check", None if expected is None else expected[0]):
        _add(whole, piece)
    return told(whole, expected)


def of_server_or_file() -> dict[str, Any]:
    """Check the books of the server; where none runs, those in its database. Raises `CliError`."""
    from server.cli.manage import unserved_store

    try:
        return of_server()
    except local.NoServer:
        with unserved_store.own() as store:
            return of_database(store, None)


def of_database(store: UnservedStore, expected: tuple[int, str] | None) -> dict[str, Any]:
    """Check one that no server is asked about. Raise `StoreError`."""
    from msgspec.structs import asdict

    from server.admin.audit_commands import lacking
    from server.admin.ledger_commands import add, mac_of
    from server.payments.seller.book_checks import BooksAt
    from server.payments.seller.ledger import Books
    from server.store import acknowledged_breaks as noted
    from server.store.audit_head import HeadLost
    from server.store.jobs import StoreDb
    from server.store.ledger_chain import LedgerChain

    chain, books, whole = LedgerChain(store.ledger_key), Books(store.ledger_key), _nothing()
    try:
        known = store.ledger_heads()
    except HeadLost as problem:
        known = ()
        whole["head_lost"] = str(problem)

    def job(db: StoreDb, at: BooksAt | None) -> BooksAt | None:
        piece = books.check(db, at)
        broken = lacking(db, chain, [known]) if piece.head is not None else None
        if expected is not None:
            whole["expected"] = mac_of(db, expected[0])
        whole["acknowledged"] = noted.told(chain.acknowledged(db))
        add(whole, piece)
        if broken is not None:
            whole["broken"] = asdict(broken)
        return piece.at

    at = store.reading(partial(job, at=None))
    while at is not None:
        at = store.reading(partial(job, at=at))
    return told(whole, expected)


def acknowledged(told: Mapping[str, Any], called: str) -> str:
    """Say in a line what somebody knew, and when."""
    from auth.audit.audit_actors import shown_actor

    when = spans.told(told["at"], "%Y-%m-%d %H:%M")
    return (
        f"acknowledged: what was not as it was written up to {called} {told['up_to']}, noticed and acknowledged by"
        f" {terminal.clean(shown_actor(told['by']))} on {when}: {terminal.clean(told['note'])}"
    )


def in_words(broken: Mapping[str, Any], *, row: str, chain: str) -> str:
    return TROUBLE[broken["what"]].format(**broken, row=row, chain=chain)


def told(whole: Mapping[str, Any], expected: tuple[int, str] | None) -> dict[str, Any]:
    problem = _problem(whole, expected)
    head = whole["head"]
    return {
        "sound": problem is None,
        "movements": whole["movements"],
        "accounts": whole["accounts"],
        "head": None if head is None or whole["broken"] else f"{head['seq']}:{head['mac']}",
        "head_lost": whole["head_lost"] or None,
        "broken": whole["broken"],
        "findings": list(whole["findings"]),
        "acknowledged": whole["acknowledged"],
        "problem": problem,
    }


def tell(result: Mapping[str, Any], speak: Callable[[str], None]) -> None:
    """Tell it to people, and as an error what is wrong."""
    if result["problem"] is not None:
        for finding in result["findings"][:TOLD]:
            terminal.say(f"  {terminal.clean(finding)}")
        if len(result["findings"]) > TOLD:
            terminal.say(f"  and {len(result['findings']) - TOLD} more")
        chained = result["broken"] is not None
        terminal.error(f"the ledger: {result['problem']}", hint=WHAT_NOW if chained else COMPARE)
        return
    movements, accounts = result["movements"], result["accounts"]
    speak(f"ledger: sound, {counted(movements, 'movement')}, {counted(accounts, 'balance')}")
    if result["acknowledged"] is not None:
        speak(acknowledged(result["acknowledged"], "movement"))
    if result["head"] is not None:
        seq, _, mac = result["head"].partition(":")
        speak(f"ledger head:  {seq}:{mac[:HEAD_DIGITS]}")
    if result["head_lost"]:
        terminal.say(
            f"there was no head outside the database to compare the ledger with: {result['head_lost']}"
        )


def _problem(whole: Mapping[str, Any], expected: tuple[int, str] | None) -> str | None:
    if whole["broken"] is not None:
        return in_words(whole["broken"], row="movement", chain="ledger")
    if whole["findings"]:
        count = len(whole["findings"])
        return f"{count} balance{' is' if count == 1 else 's are'} not what the movements come to"
    if expected is None:
        return None
    seq, mac = expected
    if whole["expected"] is None:
        return f"movement {seq} was written once, and is not there"
    return None if whole["expected"].startswith(mac) else f"movement {seq} is another than the one expected"


def _nothing() -> dict[str, Any]:
    return {
        "movements": 0, "accounts": 0, "findings": [], "broken": None, "head": None, "head_lost": "", "expected": None,
        "acknowledged": None,
    }  # fmt: skip


def _add(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    for name in ("movements", "accounts", "findings"):
        whole[name] += piece[name]
    for name in ("broken", "head", "head_lost", "expected"):
        whole[name] = piece[name] or whole[name]
    whole["acknowledged"] = piece.get("acknowledged")  # of which an older server says nothing
