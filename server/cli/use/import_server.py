"""`ostiary import URL`: a mock of a server that runs, and of what it answers to a call."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from server.cli import terminal
from server.cli.terminal import Misuse, clean, json_option, say

if TYPE_CHECKING:
    from server.agents.mock.imported_mock import Listing
    from server.agents.mock.mock_document import MockDocument
    from server.client.mcp_client import McpClient

# What is read of a server's resources for a mock of it.
RESOURCES: Final = 200
CONTENT_BYTES: Final = 8 * 1024 * 1024
CALL_SECONDS: Final = 300.0


@click.command("import")
@click.argument("url")
@click.argument("arguments", nargs=-1, metavar="[ARGUMENTS]…")
@click.option("--out", metavar="FILE", help="write it there; a file that is there keeps its scenarios")
@click.option(
    "--call", "tool", metavar="TOOL", help="call it with ARGUMENTS, and add what it answers as a scenario"
)
@json_option
def command(url: str, arguments: tuple[str, ...], out: str | None, tool: str | None, as_json: bool) -> None:
    """Make a mock of the MCP server at URL, for kind = "mock".

    \b
    ostiary import URL --out weather.json
    ostiary import URL --out weather.json --call get_weather city=Berlin
    """
    from server.agents.mock.imported_mock import imported, merged, recorded
    from server.agents.mock.mock_document import BadMock, MockDocument, read_mock, write_mock
    from server.cli.use import target

    if arguments and tool is None:
        raise Misuse("ARGUMENTS are those of a call", hint="ostiary import URL --call TOOL key=value")
    address = target.logged_in_address(url, tcp=True)
    file = None if out is None else Path(out)
    if file is not None and file.suffix == ".toml":
        raise Misuse("a mock is written as JSON", hint=f"--out {quote(str(file.with_suffix('.json')))}")
    try:
        before = read_mock(file) if file is not None and file.exists() else MockDocument()
    except BadMock as error:
        raise terminal.CliError(str(error)) from None

    async def look() -> Listing:
        async with target.connected(address.url) as mcp:
            return await listing_of(mcp)

    async def record() -> tuple[MockDocument, Mapping[str, Any]]:
        from server.agents.mock.imported_mock import Listing
        from server.cli.use.call import whole_arguments
        from server.cli.use.tools import pick
        from server.client.typed_arguments import UnusableArguments, from_words

        whole = whole_arguments(arguments)
        async with target.connected(address.url) as mcp:
            chosen = pick(await mcp.tools(), tool or "", address.url)
            try:
                filled = from_words(chosen, arguments) if whole is None else whole
            except UnusableArguments as error:
                raise Misuse(str(error), hint=error.hint) from None
            result = await mcp.call(chosen, filled, seconds=CALL_SECONDS)
        document, left_out = imported(Listing(tools=[chosen]))
        if left_out:
            raise terminal.CliError(clean(left_out[0]))
        return recorded(before, document.tools[0], filled, result), result

    try:
        if tool is not None:
            document, _ = terminal.run_async(record)
            told = [f"{clean(tool)} has one more scenario"]
        else:
            document, left_out = imported(terminal.run_async(look))
            document, gone = merged(before, document)
            told = [f"left out: {clean(reason)}" for reason in left_out]
            told += [f"there no longer, and kept: {clean(what)}" for what in gone]
    except BadMock as error:
        raise terminal.CliError(str(error)) from None
    data = write_mock(document)
    if file is None:
        sys.stdout.write(data.decode())
    else:
        replace_file(file, data)
    for line in told:
        say(line)
    if file is not None:
        counts = {
            "tools": len(document.tools),
            "resources": len(document.resources),
            "prompts": len(document.prompts),
        }
        if as_json:
            terminal.out_json({"path": str(file), **counts})
        else:
            terminal.out(f"{file}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")


async def listing_of(mcp: McpClient) -> Listing:
    """Return what the server behind it offers. Raises `ClientError`."""
    from server.agents.mock.imported_mock import Listing
    from server.client.client_errors import CallRefused

    async def listed(method: str, kind: str, named_by: str) -> list[dict[str, Any]]:
        try:
            return await mcp.listed(method, kind, named_by)
        except CallRefused:  # not there: whether a server has it, it need not say otherwise
            return []

    server = mcp.server
    tools = await mcp.tools()
    resources = await listed("resources/list", "resources", "uri")
    contents: dict[str, Mapping[str, Any]] = {}
    left = CONTENT_BYTES
    for resource in resources[:RESOURCES]:
        uri = str(resource["uri"])
        found = await mcp.contents(uri)
        size = sum(len(str(each.get(key, ""))) for each in found for key in ("text", "blob"))
        if found and size <= left:
            contents[uri] = found[0]
            left -= size
    return Listing(
        name=server.name,
        version=server.server_version,
        protocol_version=server.version,
        tools=tools,
        resources=resources,
        contents=contents,
        templates=await listed("resources/templates/list", "resourceTemplates", "uriTemplate"),
        prompts=await listed("prompts/list", "prompts", "name"),
    )


def replace_file(file: Path, data: bytes) -> None:
    """Write the file whole, or not at all."""
    beside = file.with_name(f".{file.name}.new")
    try:
        beside.write_bytes(data)
        beside.replace(file)
    except OSError as error:
        raise terminal.CliError(f"{file} cannot be written: {str(error.strerror).lower()}") from error
