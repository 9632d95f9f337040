"""The command `ostiary verify`: whether the audit trail and the ledger are as they were written; of the running server, or of a database beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.manage import bookcheck, rightscheck, unserved_store
from server.lib.counted import counted

if TYPE_CHECKING:
    from server.cli.manage.unserved_store import UnservedStore
    from server.store.jobs import Position

# As much of a MAC as is worth writing down: nobody finds another row with these.
HEAD_DIGITS: Final = 16
PIECE: Final = 1_000


@click.command("verify")
@click.option("--file", metavar="FILE", help="a back-up, or the database of a stopped server")
@click.option(
    "--store",
    "store",
    metavar="WHERE",
    help="a PostgreSQL database, for instance one that was put back: env:NAME or file:/path, where its address is kept",
)
@click.option(
    "--expect", metavar="HEAD", help="a head of the trail from an earlier run: it must be there still"
)
@click.option("--expect-ledger", metavar="HEAD", help="the same of the ledger")
@click.option(
    "--acknowledge",
    metavar="WHY",
    help="what is found is known, and no alarm from here on: it stays on record with the reason, and who said so",
)
@click.option("--yes", is_flag=True, help="do not ask before that")
@local.which_server
@terminal.json_option
def command(
    file: str | None,
    store: str | None,
    expect: str | None,
    expect_ledger: str | None,
    acknowledge: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Check the audit trail and the ledger: no row altered, missing, put in or cut off. Names the first that is. Also that every
    balance of the ledger is the sum of its movements, that each row of accounts, keys, logins and programs is as it was sealed, and that the
    trail does not speak against an account or a key.

    All of it is checked with keys that are not in the database, so a thief of the database alone cannot write them anew. The ends of the
    server's own database are compared with what the server wrote down beside it. Keep the heads on another machine: with --expect it shows,
    too, whether the whole directory was swapped for an older copy.
    """
    expected, of_ledger = _head(expect), _head(expect_ledger)
    books: dict[str, Any] | None
    if file is not None and store is not None:
        raise terminal.Misuse("--file and --store are two databases", hint="check one after the other")
    if acknowledge is not None and (file is not None or store is not None):
        raise terminal.Misuse(
            "--acknowledge is for the database of a server that runs", hint="ostiary serve, then without it"
        )
    if file is None and store is None:
        trail, books = _both(expected, of_ledger)
        if acknowledge is not None and _acknowledged(acknowledge, trail, books, yes=yes):
            trail, books = _both(expected, of_ledger)
        rights: dict[str, Any] | None = rightscheck.of_server()
    else:
        opening = (
            unserved_store.in_database(store or "") if file is None else unserved_store.in_file(Path(file))
        )
        with unserved_store.opened(opening) as opened:
            trail = _walked(_of_copy(opened, expected), expected)
            rights = rightscheck.of_database(opened)
            books = None
            if opened.has_ledger:
                books = bookcheck.of_database(opened, of_ledger)
    if books is None and of_ledger is not None:
        raise terminal.CliError(f"{file} is older than the ledger")
    result, last = trail
    sound = all(part is None or part["sound"] for part in (result, rights, books))
    if as_json:
        terminal.out_json({**result, "sound": sound, "rights": rights, "ledger": books})
    else:
        # A result only if all of it is sound: what is said of the other one is talk.
        speak = terminal.out if sound else terminal.say
        _tell(result, last, speak)
        rightscheck.tell(rights, speak)
        if books is not None:
            bookcheck.tell(books, speak)
    return 0 if sound else terminal.EXIT_FAILED


def _both(
    expected: tuple[int, str] | None, of_ledger: tuple[int, str] | None
) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    """Check the trail and the ledger of the running server."""
    pieces = local.pieces("audit.verify", None if expected is None else expected[0])
    return _walked(pieces, expected), bookcheck.of_server(of_ledger)


def _acknowledged(
    why: str, trail: tuple[dict[str, Any], dict[str, Any]], books: Mapping[str, Any], *, yes: bool
) -> bool:
    """Have what is broken acknowledged, after a question; return whether anything was. Balances are no chain: they are put right, or stay an alarm."""
    found = [("the audit trail", "audit.acknowledge", trail[0]), ("the ledger", "ledger.acknowledge", books)]
    broken = [each for each in found if each[2]["broken"] is not None]
    if not broken:
        terminal.say("nothing is there to be acknowledged")
        return False
    for called, _, result in broken:
        terminal.say(f"{called}: {result['problem']}")
    if not terminal.agreed("Is that known, and no alarm from here on?", yes=yes):
        return False
    for _, command, _ in broken:
        local.ask(command, {"note": why})
    return True


def _walked(
    pieces: Iterator[dict[str, Any]], expected: tuple[int, str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is to be said of the trail, and its last piece."""
    checked = swept = 0
    line, last = terminal.StatusLine(), dict[str, Any]()
    for last in pieces:
        checked, swept = checked + last["checked"], swept + last["swept"]
        line.show(f"{checked} rows are sound so far")
    line.clear()
    problem = _problem(last, expected)
    return {
        "sound": problem is None,
        "checked": checked,
        "swept": swept,
        "swept_at": last["swept_at"] or None,
        "head": None if last["broken"] else f"{last['at']['seq']}:{last['at']['mac']}",
        "broken": last["broken"],
        "acknowledged": last.get("acknowledged"),
        "problem": problem,
    }, last


def _tell(result: Mapping[str, Any], last: Mapping[str, Any], speak: Callable[[str], None]) -> None:
    checked, swept = result["checked"], result["swept"]
    rows = counted(checked, "row")
    if result["problem"] is not None:
        terminal.say(f"of the trail {rows} before it are sound")
        terminal.error(f"the audit trail: {result['problem']}", hint=bookcheck.WHAT_NOW)
        return
    speak(f"sound: {rows}" + (f", up to {last['at']['seq']}" if checked else ""))
    head = f"{last['at']['seq']}:{last['at']['mac'][:HEAD_DIGITS]}"
    if swept:
        when = spans.told(result["swept_at"], "%Y-%m-%d %H:%M")
        speak(f"swept: {counted(swept, 'row')} that were over, the last time on {when}")
    if result["acknowledged"] is not None:
        speak(bookcheck.acknowledged(result["acknowledged"], "row"))
    speak(f"head:  {head}")
    if last["head_lost"]:
        terminal.say(f"there was no head outside the database to compare with: {last['head_lost']}")
    terminal.say_hint(f"keep the head elsewhere, for: ostiary verify --expect {quote(head)}")


def _problem(last: Mapping[str, Any], expected: tuple[int, str] | None) -> str | None:
    if last["broken"] is not None:
        return bookcheck.in_words(last["broken"], row="row", chain="trail")
    if expected is None:
        return None
    seq, mac = expected
    if seq > last["at"]["seq"]:
        return f"the trail ends with row {last['at']['seq']}, and row {seq} was written once"
    if last["expected"] is None:
        return f"row {seq} is not there any more: it was swept, or what is there is another trail"
    return None if last["expected"].startswith(mac) else f"row {seq} is another than the one expected"


def _head(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,18}):([0-9a-f]{16,64})", text)
    if match is None:
        raise terminal.Misuse("that is no head", hint="it is a number, a colon and hexadecimal digits")
    return int(match[1]), match[2]


def _of_copy(opened: UnservedStore, expected: tuple[int, str] | None) -> Iterator[dict[str, Any]]:
    from msgspec.structs import replace

    from server.admin.audit_commands import lacking, told
    from server.store import acknowledged_breaks
    from server.store.audit_chain import AuditChain
    from server.store.audit_head import HeadLost
    from server.store.jobs import Position, StoreDb

    chain, lost = AuditChain(opened.trail_key), ""
    heads: tuple[Position, ...] = ()
    try:
        heads = opened.trail_heads()
    except HeadLost as problem:
        lost = str(problem)
    at = None

    def job(db: StoreDb, at: Position | None) -> dict[str, Any]:
        piece = chain.walk(db, at, at_most=PIECE)
        if piece.done and piece.broken is None:
            piece = replace(piece, broken=lacking(db, chain, [heads]))
        row = expected and db.fetch_one("SELECT mac FROM audit WHERE seq = ?", expected[0])
        return {
            **told(piece),
            "head_lost": lost,
            "expected": row["mac"] if row else None,
            "acknowledged": acknowledged_breaks.told(chain.acknowledged(db)),
        }

    while True:
        piece = opened.reading(partial(job, at=at))
        yield piece
        if piece["done"]:
            return
        at = Position(**piece["at"])
