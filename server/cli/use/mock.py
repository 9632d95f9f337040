"""`ostiary mock diff`, `duplicate`: mocks as files."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from server.cli import terminal
from server.cli.terminal import clean, json_option, out

if TYPE_CHECKING:
    from server.agents.mock.mock_document import MockDocument

MARKS: Final = {"added": "+", "removed": "-", "changed": "~"}


@click.group("mock")
def command() -> None:
    """Compare and copy mocks, the documents of kind = "mock". `ostiary import` makes one of a server that runs."""


@command.command("diff")
@click.argument("file")
@click.argument("other")
@json_option
def diff(file: str, other: str, as_json: bool) -> int:
    """Show what is different in OTHER, another file or the address of a server. Exit code 1 if anything is."""
    import msgspec

    from server.agents.mock.mock_differences import differences

    path = Path(other)
    live = "://" in other or not path.exists()
    found = differences(_read(Path(file)), _live(other) if live else _read(path), answers=not live)
    if as_json:
        terminal.out_json({"differences": msgspec.to_builtins(found)})
    for each in () if as_json else found:
        keys = f": {', '.join(each.keys)}" if each.keys else ""
        out(f"{MARKS[each.change]} {each.kind} {clean(each.name)}{clean(keys)}")
    return terminal.EXIT_FAILED if found else 0


@command.command("duplicate")
@click.argument("file")
@click.argument("copy")
@click.option("--name", default="", help="what the copy calls itself")
@json_option
def duplicate(file: str, copy: str, name: str, as_json: bool) -> None:
    """Copy the mock FILE to COPY, which must not be there."""
    from server.agents.mock.imported_mock import copied
    from server.agents.mock.mock_document import write_mock

    document = copied(_read(Path(file)), name)
    try:
        with Path(copy).open("xb") as handle:
            handle.write(write_mock(document))
    except FileExistsError:
        raise terminal.CliError(
            f"{copy} is there already", hint=f"ostiary mock diff {quote(file)} {quote(copy)}"
        ) from None
    except OSError as error:
        raise terminal.CliError(f"{copy} cannot be written: {str(error.strerror).lower()}") from error
    if as_json:
        terminal.out_json({"path": copy})
    else:
        out(copy)


def _read(file: Path) -> MockDocument:
    from server.agents.mock.mock_document import BadMock, read_mock

    try:
        return read_mock(file)
    except BadMock as error:
        raise terminal.CliError(str(error)) from None


def _live(url: str) -> MockDocument:
    from server.agents.mock.imported_mock import Listing, imported
    from server.cli.use import target
    from server.cli.use.import_server import listing_of

    address = target.logged_in_address(url, tcp=True)

    async def main() -> Listing:
        async with target.connected(address.url) as mcp:
            return await listing_of(mcp)

    document, left_out = imported(terminal.run_async(main))
    for reason in left_out:
        terminal.say(f"not compared: {clean(reason)}")
    return document
