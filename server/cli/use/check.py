"""`ostiary check [URL]`: does a server still offer what it offered, do its tools do what they promise, and are they well described?

Without a URL the settings are tried out: each server is started for this over pipes, with nothing that a running one has in its hands.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from server.cli import local, spans, terminal
from server.cli.terminal import CliError, Misuse, clean, json_option, out, paint
from server.mcp.tool_names import MEND, refusal, refused_names

if TYPE_CHECKING:
    from server.client.checks.call_examples import DeclaredExample, ToolVerdict
    from server.client.checks.description_score import ServerScore
    from server.client.checks.offer_snapshot import Drift, KeptTools
    from server.client.mcp_client import McpClient
    from server.client.server_info import ServerInfo
    from server.settings.setting_shapes import ServerConfig
    from server.settings.settings_reader import LoadedSettings

CALL_SECONDS: Final = 60.0
MARKS: Final = {"ok": ("✓", "ok", "green"), "failed": ("✗", "no", "red"), "skipped": ("–", "--", "yellow")}
CHANGES: Final = {"added": ("+", "is new"), "removed": ("-", "is gone"), "changed": ("~", "is another")}


class Checked(NamedTuple):
    """A server that was looked at."""

    name: str
    info: ServerInfo
    tools: Sequence[Mapping[str, Any]]
    verdicts: Sequence[ToolVerdict]
    examples: Mapping[str, DeclaredExample]


@click.command("check")
@click.argument("url", required=False)
@click.option("--server", metavar="NAME", help="of the settings: this one alone (all of them)")
@click.option("--config", metavar="FILE", help="the settings; with a URL, for the examples in them alone")
@click.option("--write", "written", metavar="FILE", help="keep what is offered there")
@click.option("--against", metavar="FILE", help="compare it with what was kept there")
@click.option(
    "--all", "tries_all", is_flag=True, help="call also what may change something, or costs something"
)
@click.option(
    "--score", "scored", is_flag=True, help="call nothing, and say how well the tools are described"
)
@click.option(
    "--at-least",
    type=click.IntRange(0, 100),
    metavar="N",
    help="with --score: fail below so many percent",
)
@click.option(
    "--timeout",
    type=spans.Seconds(shortest=0.1, longest=86_400),
    default=CALL_SECONDS,
    metavar="TIME",
    help=f"how long a call may take, like 90 (seconds) or 5m; {CALL_SECONDS:g} unless told",
)
@json_option
def command(
    url: str | None,
    server: str | None,
    config: str | None,
    written: str | None,
    against: str | None,
    tries_all: bool,
    scored: bool,
    at_least: int | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Check the MCP server at URL, or those of the settings.

    \b
    ostiary check                         call each tool's example
    ostiary check --write tools.json      and keep what is offered
    ostiary check --against tools.json    say what is not as it was kept
    ostiary check --score --at-least 80   how well the tools are described

    An example is `example = {…}` in [server.tools.NAME], or the schema's own. Tools that may change something are called
    with --all, or where the settings say example_safe = true.

    Exit code 1 where an example failed, something is not as it was, or the score is too low.
    """
    if written and against:
        raise Misuse("--write and --against are two things", hint="first the one, then the other")
    if at_least is not None and not scored:
        raise Misuse("--at-least is for --score")
    if scored and tries_all:
        raise Misuse("--score calls nothing, so --all does not go with it")
    kept = None if against is None else _read(Path(against))

    async def main() -> list[Checked]:
        found: list[Checked] = []
        async with aclosing(_connections(url, server=server, config=config)) as connections:
            async for name, mcp, examples in connections:
                tools = await mcp.tools()
                verdicts = [] if scored else await _try(mcp, tools, examples, tries_all, timeout)
                found.append(Checked(name, mcp.server, tools, verdicts, examples))
        return found

    checked = terminal.run_async(main)
    drifts = None if kept is None else _drifts(kept, checked)
    scores = {each.name: _score(each) for each in checked} if scored else None
    if written is not None:
        _write(Path(written), checked)
    bad = (
        bool(drifts)
        or any(verdict.state == "failed" for each in checked for verdict in each.verdicts)
        or any(found.percent < (at_least or 0) for found in (scores or {}).values())
    )
    if as_json:
        terminal.out_json(_as_json(checked, drifts, scores, ok=not bad))
    else:
        for each in checked:
            _show(
                each, None if scores is None else scores[each.name], heading=len(checked) > 1 or url is None
            )
        _show_drifts(drifts, several=len(checked) > 1)
        if written is not None:
            out(f"{written}: {sum(len(each.tools) for each in checked)} tools kept")
    return terminal.EXIT_FAILED if bad else 0


# ── which servers, and by which way ──────────────────────────────────────────────────────────────────────────────────


async def _connections(
    url: str | None, *, server: str | None, config: str | None
) -> AsyncGenerator[tuple[str, McpClient, Mapping[str, DeclaredExample]], None]:
    if url is not None:
        from server.cli.use import target

        address = target.logged_in_address(url, tcp=True)
        meant = (
            None
            if config is None and server is None
            else _at(address.url, local.settings_of(None, config), server)
        )
        async with target.connected(address.url) as mcp:
            yield address.url, mcp, {} if meant is None else _examples(meant)
        return
    loaded = local.settings_of(None, config)
    for one in _named(loaded, server):
        if any(getattr(agent, "trust", "") == "pinned" for agent in one.agents):
            terminal.say_hint(
                f"{one.name} has upstreams whose tools wait until they are accepted; of a running server: ostiary check URL"
            )
        async with _started(one.name, loaded.source) as mcp:
            yield one.name, mcp, _examples(one)


@asynccontextmanager
async def _started(name: str, source: Path | None) -> AsyncGenerator[McpClient, None]:
    from server.cli.form import this_again
    from server.client.piped_server import started

    settings = [] if source is None else ["--config", str(source)]
    words = [*this_again(), "serve", "--stdio", "--server", name, "--log-level", "error", *settings]
    async with started(words, name) as mcp:
        yield mcp


def _named(loaded: LoadedSettings, name: str | None) -> Sequence[ServerConfig]:
    found = [each for each in loaded.servers if name in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in loaded.servers)
        raise Misuse(f"there is no server {name}", hint=f"the settings have {names}")
    return found


def _at(url: str, loaded: LoadedSettings, name: str | None) -> ServerConfig:
    """Return the server that is meant by an address: of that name, else of that path, else the only one."""
    if name is not None or len(loaded.servers) == 1:
        return _named(loaded, name)[0]
    from server.settings.resolved_settings import resolve

    path, resolved = urlsplit(url).path, resolve(loaded)
    for each in loaded.servers:
        if path == resolved.paths[each.name] or resolved.aliases.get(path) == each.name:
            return each
    raise Misuse(f"which server of the settings is at {url}?", hint="--server NAME")


def _examples(server: ServerConfig) -> Mapping[str, DeclaredExample]:
    import msgspec

    from server.client.checks.call_examples import DeclaredExample

    return {
        # What TOML has and JSON has not, such as a date, is sent as a text.
        name: DeclaredExample(
            arguments=msgspec.to_builtins(tool.example), safe=tool.example_safe or tool.tier == "read"
        )
        for name, tool in server.tools.items()
        if tool.example is not None
    }


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _try(
    mcp: McpClient,
    tools: Sequence[Mapping[str, Any]],
    examples: Mapping[str, DeclaredExample],
    tries_all: bool,
    seconds: float,
) -> list[ToolVerdict]:
    from server.client.checks.call_examples import ToolVerdict, examples_of

    found: list[ToolVerdict] = []
    status = terminal.StatusLine()
    try:
        for tool in tools:
            name = str(tool["name"])
            status.show(name)
            own = examples_of(tool, examples.get(name))
            verdict = ToolVerdict(tool=name, state="skipped", words="no example")
            for example in own:
                verdict = await _try_one(mcp, tool, example, tries_all, seconds)
                if verdict.state != "ok":
                    break
            found.append(verdict)
        offered = {str(tool["name"]) for tool in tools}
        found += [
            ToolVerdict(
                tool=name, state="failed", words="the settings have an example of it, and it is not offered"
            )
            for name in examples
            if name not in offered
        ]
    finally:
        status.clear()
    return found


async def _try_one(
    mcp: McpClient, tool: Mapping[str, Any], example: DeclaredExample, tries_all: bool, seconds: float
) -> ToolVerdict:
    from server.client.checks.call_examples import ToolVerdict, broken_promise, misfit, reason_to_skip
    from server.client.client_errors import ClientError, NotLoggedIn

    name = str(tool["name"])
    if (problem := misfit(tool, example.arguments)) is not None:
        return ToolVerdict(tool=name, state="failed", words=problem)
    if (reason := reason_to_skip(tool, example, tries_all=tries_all)) is not None:
        return ToolVerdict(tool=name, state="skipped", words=reason)
    began = perf_counter()
    try:
        result = await mcp.call(tool, example.arguments, seconds=seconds)
    except NotLoggedIn:
        raise
    except ClientError as error:
        return ToolVerdict(tool=name, state="failed", words=str(error))
    ms = round((perf_counter() - began) * 1000)
    problem = broken_promise(tool, result)
    if problem is None:
        return ToolVerdict(tool=name, state="ok", words=f"{ms} ms", ms=ms)
    return ToolVerdict(tool=name, state="failed", words=problem, ms=ms)


def _score(checked: Checked) -> ServerScore:
    from server.client.checks.description_rules import ServerWords
    from server.client.checks.description_score import score

    words = ServerWords(description=checked.info.description, instructions=checked.info.instructions)
    return score(checked.tools, words, frozenset(checked.examples))


# ── what was kept ────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(file: Path) -> KeptTools:
    from server.client.checks.offer_snapshot import MAX_BYTES, BadSnapshot, read

    try:
        with file.open("rb") as opened:
            return read(opened.read(MAX_BYTES + 1))
    except FileNotFoundError:
        raise Misuse(f"there is no file {file}", hint=f"ostiary check --write {quote(str(file))}") from None
    except OSError as error:
        raise Misuse(f"cannot read {file}: {(error.strerror or 'unknown error').lower()}") from None
    except BadSnapshot as problem:
        raise Misuse(f"{file} {problem}", hint=f"ostiary check --write {quote(str(file))}") from None


def _write(file: Path, checked: Sequence[Checked]) -> None:
    from server.cli.use.import_server import replace_file
    from server.client.checks.offer_snapshot import definitions, write

    replace_file(file, write({each.name: definitions(each.tools) for each in checked}))


def _drifts(kept: KeptTools, checked: Sequence[Checked]) -> list[Drift]:
    from server.client.checks.offer_snapshot import definitions, drifts

    now = {each.name: definitions(each.tools) for each in checked}
    # Of several servers that are kept one alone may be looked at now.
    before = {
        name: tools for name, tools in kept.servers.items() if len(now) > 1 or name in now
    } or kept.servers
    if len(now) == 1 and len(before) > 1:
        raise CliError(
            "the file is of several servers, and none is called like this one", hint="--server NAME"
        )
    return drifts(before, now)


# ── saying ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(checked: Checked, score: ServerScore | None, *, heading: bool) -> None:
    if heading:
        out(paint(clean(checked.name), "bold", sys.stdout))
    if not checked.tools:
        terminal.say("it has no tools, or none that you may see")
    if score is not None:
        _show_score(checked, score)
        return
    if refused := refused_names(str(tool["name"]) for tool in checked.tools):
        terminal.say_hint(clean(f"{refusal(refused)}; {MEND}"))
    rows = [(_mark(each.state), clean(each.tool), clean(each.words)) for each in checked.verdicts]
    for line in terminal.columns(rows):
        out(line)
    counts = {state: sum(each.state == state for each in checked.verdicts) for state in MARKS}
    out(
        f"{len(checked.tools)} tools: {counts['ok']} ok, {counts['failed']} failed, {counts['skipped']} not called"
    )


def _mark(state: str) -> str:
    mark, plain, colour = MARKS[state]
    return paint(mark if terminal.can_draw(sys.stdout) else plain, colour, sys.stdout)


def _show_score(checked: Checked, score: ServerScore) -> None:
    for each in score.tools:
        out(f"{each.percent:>3} %  {paint(clean(each.tool), 'bold', sys.stdout)}")
        for finding in each.findings:
            out(f"       {clean(finding.words)}; {finding.mend}")
    for finding in score.findings:
        out(f"       {clean(finding.words)}; {finding.mend}")
    out(f"{score.percent} % for {clean(checked.name)}")


def _show_drifts(drifts: Sequence[Drift] | None, *, several: bool) -> None:
    if drifts is None:
        return
    from server.agents.mcp.trust.definition_differences import difference, near_changes, shown

    colours = {"-": "red", "+": "green"}
    for drift in drifts:
        sign, words = CHANGES[drift.change]
        name = f"{drift.server}: {drift.tool}" if several else drift.tool
        out(paint(f"{sign} {shown(name)} {words}", "bold", sys.stdout))
        if drift.change != "changed":
            continue
        for line in near_changes(difference(drift.before, drift.after), context=1):
            if line is None:
                out(paint("    …", "dim", sys.stdout))
            else:
                text = f"  {line.sign} {shown(line.text)}"
                out(paint(text, colours[line.sign], sys.stdout) if line.sign in colours else text)
    count = len(drifts)
    out(
        f"{count} {'tool is' if count == 1 else 'tools are'} not as kept"
        if drifts
        else "everything is as it was kept"
    )


def _as_json(
    checked: Sequence[Checked],
    drifts: Sequence[Drift] | None,
    scores: Mapping[str, ServerScore] | None,
    *,
    ok: bool,
) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = {"ok": ok, "servers": []}
    for each in checked:
        told: dict[str, Any] = {
            "name": each.name,
            "tools": len(each.tools),
            "refused_names": refused_names(str(tool["name"]) for tool in each.tools),
        }
        if scores is None:
            told["examples"] = [msgspec.to_builtins(verdict) for verdict in each.verdicts]
        else:
            told["score"] = msgspec.to_builtins(scores[each.name])
        found["servers"].append(told)
    if drifts is not None:
        found["drift"] = [
            {"server": each.server, "tool": each.tool, "change": each.change} for each in drifts
        ]
    return found
