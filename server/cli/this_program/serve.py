"""`ostiary serve`: start the server, say where it listens and what to try next, and stop politely. With `--stdio`, serve the
one client that started it, and say nothing."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from shlex import join, quote
from shutil import which
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, cast

import click

from server.cli import local, terminal
from server.settings.plain_settings import PLAIN_SETTINGS

if TYPE_CHECKING:
    from server.agents.mcp.mcp_settings import Prefix
    from server.calls.servers.server_opening import CannotStart
    from server.lib.log.log_lines import Lines
    from server.lib.log.logger import Logger
    from server.run.one_of_several import OneOfSeveral
    from server.run.start_report import StartedServer
    from server.settings.resolved_settings import Resolved
    from server.settings.setting_shapes import ServerConfig
    from server.settings.settings_reader import LoadedSettings

# Container objects made between two looks of the collector: some megabytes at most. The default, 700, is a few requests' worth, and
# loading the program would be interrupted a hundred times.
COLLECT_EVERY: Final = 20_000

# In the environment of a worker alone: cluster/workers/worker_handover.py says what it is.
WORKER: Final = "OSTIARY_WORKER"

# What holds our port is asked who it is, and may be anything; most that is none of us says so at once, and one of us may be busy.
LOOK_SECONDS: Final = 10.0
LOOK_BYTES: Final = 64 * 1024

AFTER_DASHES: Final = "ostiary.after_dashes"
AS_TYPED: Final = "ostiary.as_typed"  # all that follows `serve`


def _load_msgspec() -> None:
    """Import msgspec without typing_extensions, from which it would take what `typing` has: half a MiB for good."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = cast(
        "Any", None
    )  # to import it fails now, and msgspec is prepared for that
    try:
        import msgspec as msgspec
    finally:
        del sys.modules["typing_extensions"]


def _settings_as_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, metavar, text in reversed([row for rows in PLAIN_SETTINGS.values() for row in rows]):
        remembered = local.remembered if name == "data_dir" else None
        command = click.option(_flag(name), metavar=metavar, help=text, callback=remembered)(command)
    return command


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class _ServeCommand(click.Command):
    """The command `serve`. Arguments after `--` are somebody else's command line, and not looked at."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[AS_TYPED] = tuple(args)
        if "--" in args:
            place = args.index("--")
            ctx.meta[AFTER_DASHES] = tuple(args[place + 1 :])
            args = args[:place]
        given = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            if len(given) < 2 or given[0].startswith("-") or which(given[0]) is None:
                raise
            raise terminal.Misuse(
                f"{terminal.clean(given[0])} is a program, and comes after --",
                hint=terminal.clean(f"ostiary serve -- {join(given)}"),
            ) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        headings = {
            _flag(name): title.lower() for title, rows in PLAIN_SETTINGS.items() for name, _, _ in rows
        }
        sections: dict[str, list[tuple[str, str]]] = {"options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(headings.get(parameter.opts[-1], "options"), []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND …]"]


@click.command(
    cls=_ServeCommand,
    help="Start the server. Settings come from ostiary.toml, the environment (OSTIARY_PORT) and these flags. TARGET, a Python file (an agent, or a server of FastMCP or the Python SDK), a .3md document,"
    " a folder of SKILL.md files, a mock (.json) or a program's file of mcpServers (.mcp.json), is served without any ostiary.toml.\n\n"
    "With -- COMMAND …, or with --upstream, it is the door in front of that MCP server, and needs no settings at all.",
)
@click.argument("target", required=False)
@click.option("--upstream", metavar="URL", help="the MCP server at this address, behind this door")
@click.option(
    "--env",
    "variables",
    metavar="NAME",
    multiple=True,
    help="a variable that COMMAND gets to see; repeatable",
)
@click.option(
    "--era",
    type=click.Choice(["auto", "stateless", "handshake"]),
    help="with COMMAND or --upstream: which MCP to speak with it (auto: 2026-07-28 where it can)",
)
@click.option(
    "--prefix",
    type=click.Choice(["always", "on collision", "never"]),
    help="with a file of mcpServers: when a server's name is in front of its tools' (always)",
)
@click.option(
    "--share",
    type=click.Choice(["caller", "all"]),
    help="with COMMAND: whom one process of it serves: the caller it was started for, or all (caller)",
)
@click.option(
    "--config",
    metavar="FILE",
    help="the settings (./ostiary.toml, else the platform's place, else defaults)",
    callback=local.remembered,
)
@click.option(
    "--stdio", is_flag=True, help="serve the program that starts this one, over its pipes: no port, no login"
)
@click.option(
    "--expose", multiple=True, metavar="TOOL", help="offer this tool alone; may be given again (all of them)"
)
@click.option(
    "--tcp",
    metavar="[HOST:]PORT",
    help="serve lines of messages on this port: no login, so for this machine; 0 picks a free one",
)
@click.option(
    "--mock",
    "mocks",
    multiple=True,
    metavar="FILE",
    help="answer the tools that this mock has out of it, in place of their agents; repeatable",
)
@click.option("--server", metavar="NAME", help="with --stdio or --tcp: which [[server]] (the first)")
@click.option("-v", "--verbose", is_flag=True, help="a log for people shows ids and all else that there is")
@_settings_as_flags
@terminal.version_option
@terminal.json_option
def command(
    target: str | None,
    config: str | None,
    stdio: bool,
    tcp: str | None,
    expose: tuple[str, ...],
    mocks: tuple[str, ...],
    server: str | None,
    as_json: bool,
    upstream: str | None,
    variables: tuple[str, ...],
    era: Literal["auto", "stateless", "handshake"] | None,
    prefix: Prefix | None,
    share: Literal["caller", "all"] | None,
    verbose: bool,
    **flags: str | None,
) -> None:
    gc.set_threshold(COLLECT_EVERY)
    _load_msgspec()
    from msgspec.structs import replace

    from server.run.orphaned_processes import programs_ended
    from server.run.process_memory import close_memory

    closed = close_memory()
    place = _place_of_worker() if WORKER in os.environ else None
    from server.cli.this_program.targets import what_to_serve
    from server.lib.log.log_lines import Lines
    from server.lib.log.structured_log import make_logger, quieten_foreign_loggers
    from server.run.whole_settings import read_whole
    from server.settings.resolved_settings import resolve
    from server.settings.settings_reader import ConfigInvalid, find_file, load, misspelt

    if stdio and as_json:
        raise terminal.Misuse("--json does not go with --stdio: stdout is for messages there")
    if stdio and tcp is not None:
        raise terminal.Misuse("--stdio and --tcp are two ways: choose one")
    one_server = stdio or tcp is not None
    if server is not None and not one_server:
        raise terminal.Misuse("--server goes with --stdio and --tcp: over HTTP all servers are served")
    after_dashes = click.get_current_context().meta.get(AFTER_DASHES, ())
    served = what_to_serve(target, upstream, after_dashes, variables, era, prefix, share)
    if served is not None and one_server and served.max_body_kib and flags["max_body_kib"] is None:
        flags["max_body_kib"] = str(served.max_body_kib)

    def meant(loaded: LoadedSettings) -> LoadedSettings:
        if served is None:
            return loaded
        if loaded.names_servers:
            raise terminal.Misuse(
                "--config names what is served already",
                hint="leave out the [[server]] there, or what is named here",
            )
        return replace(loaded, servers=(served.server,), servers_file=served.file)

    def read_settings(file: Path | None) -> Resolved:
        return chosen(resolve(meant(load(file, os.environ, flags))))

    def chosen(resolved: Resolved) -> Resolved:
        resolved = replace(resolved, program=terminal.program_anywhere())
        if not expose and not mocks:
            return resolved
        one = _only_one(resolved, server, one_server, "--expose" if expose else "--mock")
        changed = replace(one, expose=expose) if expose else one
        if mocks:
            from server.cli.this_program.targets import mocked

            changed = mocked(changed, mocks)
        servers = tuple(changed if each is one else each for each in resolved.servers)
        return replace(resolved, servers=servers)

    for warning in misspelt(os.environ) if place is None else ():
        terminal.say_hint(warning)
    try:
        # A file that merely lies here describes another server; one that is named is meant.
        file = None if served and config is None else find_file(config, os.environ)
        text = None if place is None else place.settings
        resolved = chosen(read_whole(file, os.environ, flags, changed=meant, text=text))
    except ConfigInvalid as invalid:
        raise local.invalid_settings(invalid) from invalid
    several = place is not None or (resolved.workers > 1 and not one_server)
    lines = Lines(sys.stderr)
    log = make_logger(
        level=resolved.config.log_level,
        style=resolved.config.log_format,
        stream=None if place is None else place.terminal,
        lines=lines,
        everything=verbose,
        worker=(0 if place is None else place.number) if several else None,
    )
    quieten_foreign_loggers(log)
    if served is not None and served.line and place is None:
        terminal.say(served.line)
    if not closed and place is None:
        log.warning("server.memory_not_closed", to="processes of the same user")
    try:
        # A worker's are its parent's.
        with lines.held(), programs_ended() if place is None else nullcontext():
            if stdio:
                _over_pipes(resolved, log, _named(resolved, server))
            elif tcp is not None:
                _over_tcp(resolved, log, tcp, _named(resolved, server), as_json=as_json)
            elif several and place is None:
                _with_workers(resolved, log, lines, as_json=as_json)
            else:
                # The same file for as long as it runs: another one elsewhere is none of its business.
                read = partial(read_settings, resolved.source)
                _over_http(resolved, log, lines, read, place, as_json=as_json)
    finally:
        _let_go(sys.stderr, stuck=lines.stuck)


def _only_one(resolved: Resolved, named: str | None, one_server: bool, option: str) -> ServerConfig:
    """Return the server that an option of the command line is about."""
    if len(resolved.servers) > 1 and not one_server:
        what = "expose = [...]" if option == "--expose" else 'mock = "FILE" of a tool'
        raise terminal.Misuse(
            f"{option} is for one server, and the settings have several",
            hint=f"write {what} at the one that is meant",
        )
    return _named(resolved, named)


def _place_of_worker() -> OneOfSeveral:
    from server.run.one_of_several import place_of

    try:
        return place_of(os.environ)
    except ValueError as problem:
        raise terminal.Misuse(
            terminal.clean(str(problem)), hint=f"start it without {WORKER}: `env -u {WORKER} ostiary serve`"
        ) from problem


def _with_workers(resolved: Resolved, log: Logger, lines: Lines, *, as_json: bool) -> None:
    from server.calls.servers.cannot_start import CannotStart
    from server.cli.form import this_again
    from server.run.app_workers import Parent, run_workers

    typed: tuple[str, ...] = click.get_current_context().meta[AS_TYPED]
    seen = terminal.is_terminal(sys.stderr)
    parent = Parent(
        resolved,
        log,
        lines,
        [*this_again(), "serve", *typed],
        announce=_announce_json if as_json else partial(_announce, resolved=resolved),
        shows_claim_link=not as_json and seen,
        terminal=sys.stderr.fileno() if seen else -1,
    )
    try:
        run_workers(parent)
    except CannotStart as problem:
        raise _cannot_start(problem) from problem


def _over_http(
    resolved: Resolved,
    log: Logger,
    lines: Lines,
    read_settings: Callable[[], Resolved],
    place: OneOfSeveral | None,
    *,
    as_json: bool,
) -> None:
    from server.calls.servers.cannot_start import CannotStart
    from server.run import app
    from server.run.one_process import OneProcess

    of_process = place or OneProcess(
        _announce_json if as_json else partial(_announce, resolved=resolved),
        shows_claim_link=not as_json and terminal.is_terminal(sys.stderr),
    )
    try:
        app.run(resolved, log, of_process, lambda: lines.dropped, read_settings)
    except CannotStart as problem:
        if place is not None:  # its parent says it
            place.refuse(problem)
            sys.exit(terminal.exit_code_of(problem))
        raise _cannot_start(problem) from problem


def _over_pipes(resolved: Resolved, log: Logger, server: ServerConfig) -> None:
    from server.calls.servers.server_opening import CannotStart
    from server.run import app_stdio

    if terminal.is_terminal(sys.stdin):
        terminal.say_hint("a program is meant to start this: type one JSON-RPC message a line, ctrl-d ends")
    try:
        app_stdio.run_stdio(resolved, log, server=server)
    except CannotStart as problem:
        raise _cannot_start(problem) from problem


def _over_tcp(resolved: Resolved, log: Logger, written: str, server: ServerConfig, *, as_json: bool) -> None:
    from server.calls.servers.server_opening import CannotStart
    from server.run import app_tcp

    try:
        place = app_tcp.read_place(written)
    except ValueError as problem:
        raise terminal.Misuse(
            f"--tcp: {terminal.clean(str(problem))}", hint="--tcp 9000, or --tcp 127.0.0.1:9000"
        ) from None
    if resolved.sells:
        raise terminal.Misuse("over TCP nobody can pay, and the settings have prices")
    if not place.loopback and not resolved.open_to_all(server):
        raise terminal.Misuse(
            f"over TCP nobody logs in: --tcp {terminal.clean(written)} would let in whoever reaches it",
            hint=f"--tcp {place.port} is for this machine; with --auth none it is for all",
        )

    def announce(found: app_tcp.TcpPlace) -> None:
        if as_json:
            terminal.out_json({"tcp": str(found)})
        else:
            terminal.out(f"Listening on tcp://{found}")
        sys.stdout.flush()

    try:
        app_tcp.run_tcp(resolved, log, place, server=server, announce=announce)
    except CannotStart as problem:
        raise _cannot_start(problem) from problem


def _cannot_start(problem: CannotStart) -> terminal.CliError:
    for detail in problem.details:
        terminal.say(f"  {terminal.clean(detail)}")
    taken = getattr(problem.__cause__, "port", None)
    next_port = taken + 1 if isinstance(taken, int) and taken < 65535 else 8420
    if isinstance(taken, int) and (there := _ostiary_at(taken)) is not None:
        return terminal.CliError(
            f"port {taken} is in use by another Ostiary, {there}",
            hint=f"stop it, or serve beside it: `ostiary serve --port {quote(str(next_port))} --data-dir DIR`",
        )
    return terminal.CliError(
        str(problem), hint=problem.hint or None, exit_code=terminal.exit_code_of(problem)
    )


def _ostiary_at(port: int) -> str | None:
    """Return the name of the Ostiary that listens there on this machine; None if it does not say so in time."""
    import json
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection("127.0.0.1", port, timeout=LOOK_SECONDS)
    try:
        connection.request("GET", "/.well-known/oauth-authorization-server")
        answer = connection.getresponse()
        found = json.loads(answer.read(LOOK_BYTES))
        issuer = found["issuer"] if "ostiary_client_id" in found else None
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()
    return terminal.clean(issuer) if isinstance(issuer, str) else None


def _named(resolved: Resolved, name: str | None) -> ServerConfig:
    for server in resolved.servers:
        if name in (None, server.name):
            return server
    names = ", ".join(server.name for server in resolved.servers)
    raise terminal.Misuse(f"there is no server {name}", hint=f"the settings have {names}")


def _let_go(stream: TextIO, *, stuck: bool) -> None:
    """Let go of a log whose reader has gone or is stuck, so that a clean end stays one."""
    try:
        if not stuck:
            stream.flush()
            return
    except OSError:
        pass
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _announce_json(started: StartedServer) -> None:
    terminal.out_json(
        {
            "origin": started.origin,
            "endpoints": [started.origin + path for path in started.paths],
            "admin": started.admin_origin,
            "needs_login": started.needs_login,
            **({"sold": started.sold} if started.sold else {}),
            **({"certificate": started.certificate} if started.certificate else {}),
        }
    )
    sys.stdout.flush()


def _announce(started: StartedServer, resolved: Resolved) -> None:
    """Print the one line that programs read, then what people want to know. The claim link, a key, is for a terminal only."""
    terminal.out(f"Listening on {started.origin}")
    sys.stdout.flush()
    if not terminal.is_terminal(sys.stderr):
        return
    program, url = terminal.program_anywhere(), started.origin + started.paths[0]
    pairs = [("MCP endpoint", started.origin + path) for path in started.paths]
    pairs.append(("behind it", "\n".join(terminal.clean(line) for line in started.serves)))
    if started.admin_origin:
        pairs.append(("health, metrics", started.admin_origin))
    pairs.append(("data", terminal.clean(terminal.from_home(str(resolved.data_dir.absolute())))))
    if store := resolved.config.store:
        source, _, name = store.partition(":")
        kept = terminal.from_home(name) if source == "file" else name
        pairs.append(("rows", terminal.clean(f"in PostgreSQL, whose address is in {kept}")))
    if started.certificate:
        pairs.append(("certificate", terminal.clean(started.certificate)))
    if started.sold:
        pairs.append(("sold", started.sold))
    if started.claim_url:
        from server.lib.oauth_client.addresses import is_loopback

        where = "a browser on this machine" if is_loopback(started.claim_url) else "any browser"
        pairs.append(("make it yours", f"{started.claim_url}\nonce, within 30 minutes, in {where}"))
    left = max(len(name) for name, _ in pairs) + 2
    terminal.say()
    for name, value in pairs:
        lines = [
            part for line in value.split("\n") for part in terminal.wrapped(line, sys.stderr, left=left + 2)
        ]
        below = f"\n{' ' * (left + 2)}".join(lines)
        terminal.say(f"  {terminal.paint(name.ljust(left), 'dim', sys.stderr)}{below}")
    terminal.say()
    terminal.say(terminal.paint("  try next, in another terminal:", "dim", sys.stderr))
    if started.needs_login:
        terminal.say(f"    {program} login {url}")
        terminal.say(f"    {program} approve CODE{_whose(resolved)}")
    terminal.say(f"    {program} tools {url}")
    if started.first_call:
        terminal.say(f"    {program} call {url} {started.first_call}")
    terminal.say()


def _whose(resolved: Resolved) -> str:
    """Return what a command for the machine needs to find this server: nothing, if its data is at the usual place."""
    from server.lib import paths

    directory = resolved.data_dir.absolute()
    return "" if directory == paths.data_home().absolute() else f" --data-dir {quote(str(directory))}"
