"""`ostiary snippets LANGUAGE [TOOL]`: a program that calls a tool, with arguments of its schema, to be copied and run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

import click

from server.cli import local, terminal
from server.cli.terminal import CliError, clean, say_hint

if TYPE_CHECKING:
    from server.client.samples.sample_programs import Language
    from server.client.server_info import ServerInfo
    from server.settings.setting_shapes import ServerConfig


@click.command("snippets")
@click.argument("language", type=click.Choice(["curl", "python", "ts"]))
@click.argument("tool", required=False)
@click.option("--server", metavar="NAME|URL", help="whose tool (the server of this machine)")
@local.which_server
def command(language: str, tool: str | None, server: str | None) -> None:
    """Print a program that calls TOOL: curl, or the official SDK of Python or TypeScript.

    \b
    ostiary snippets curl get_weather --server https://agent.example.org/mcp | sh
    ostiary snippets python get_weather > weather.py

    Its arguments are those of an example, or made from the schema. No token is in it: it takes that from OSTIARY_TOKEN,
    which `ostiary token URL` fills. Without TOOL it is for the first that only reads.
    """
    from server.cli.use import target
    from server.cli.use.tools import pick
    from server.client.samples.sample_arguments import sample
    from server.client.samples.sample_programs import PROGRAMS, TOKEN_VARIABLE, SampleCall
    from server.lib.json_objects import mapping

    url, meant = _meant(server)
    address = target.logged_in_address(url)

    async def look() -> tuple[ServerInfo, list[dict[str, Any]]]:
        async with target.connected(address.url) as mcp:
            return mcp.server, await mcp.tools()

    info, tools = terminal.run_async(look)
    if not tools:
        raise CliError(f"{address.url} has no tools, or none that you may see")
    chosen = _first(tools) if tool is None else pick(tools, tool, address.url)
    if language == "curl" and info.era == "legacy":
        raise CliError(
            f"{address.url} speaks {clean(info.version)}, where each call needs a session first",
            hint="ostiary snippets python, or ts",
        )
    own = None if meant is None else meant.tools.get(str(chosen["name"]))
    given = None if own is None or own.example is None else _plain(own.example)
    with_token = target.token_file().get(address.url) is not None
    call = SampleCall(
        url=address.url,
        tool=chosen,
        arguments=sample(mapping(chosen.get("inputSchema")), given),
        with_token=with_token,
    )
    sys.stdout.write(PROGRAMS[cast("Language", language)](call))
    if with_token:
        say_hint(f"export {TOKEN_VARIABLE}=$(ostiary token {quote(address.url)})")


def _meant(server: str | None) -> tuple[str, ServerConfig | None]:
    """Its address, and its settings where it is one of this machine's."""
    from server.cli.use import target

    if server is not None and (target.places().get(server) is not None or {".", ":", "/"} & set(server)):
        return server, None
    loaded = local.settings()
    found = next((each for each in loaded.servers if server in (None, each.name)), None)
    if found is None:
        return cast("str", server), None
    from server.settings.resolved_settings import resolve

    origin = local.ask("status")["origin"]
    return f"{origin}{resolve(loaded).paths[found.name]}", found


def _first(tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def only_reads(tool: Mapping[str, Any]) -> bool:
        hints = tool.get("annotations")
        return isinstance(hints, dict) and cast("dict[str, Any]", hints).get("readOnlyHint") is True

    return next((tool for tool in tools if only_reads(tool)), tools[0])


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    import msgspec

    return msgspec.to_builtins(arguments)
