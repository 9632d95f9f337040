"""The command table. A command's module is imported when it is called, so `--help` and `--version` stay light.

Each module has a `command: click.Command`. What a command returns is its exit code; nothing means 0.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import click

from server.cli import hints, terminal
from server.client.client_errors import ClientError


class CommandEntry(NamedTuple):
    module: str
    help: str


SECTIONS: Final[Mapping[str, Mapping[str, CommandEntry]]] = MappingProxyType(
    {
        "the server": {
            "serve": CommandEntry("server.cli.this_program.serve", "start the server"),
            "init": CommandEntry("server.cli.this_program.init", "write a commented ostiary.toml"),
            "backup": CommandEntry("server.cli.manage.backup", "copy the database while the server runs"),
            "restore": CommandEntry("server.cli.manage.restore", "put a back-up in the database's place"),
            "store": CommandEntry(
                "server.cli.manage.store", "move everything to another database, or seal it"
            ),
            "upstream": CommandEntry(
                "server.cli.manage.upstream", "see, accept and log in to the MCP servers behind this one"
            ),
            "keys": CommandEntry("server.cli.manage.keys", "list and change the keys that sign tokens"),
            "certificate": CommandEntry(
                "server.cli.manage.certificate", "see, renew and revoke its certificate"
            ),
            "audit": CommandEntry("server.cli.manage.audit", "show or export who was let in, and by whom"),
            "calls": CommandEntry("server.cli.manage.calls", "show who called what, and what came of it"),
            "usage": CommandEntry("server.cli.manage.usage", "sum calls up, by day, tool or person"),
            "policy": CommandEntry(
                "server.cli.manage.policy", "try the rules out that stand in front of tools"
            ),
            "verify": CommandEntry(
                "server.cli.manage.verify", "check that trail and ledger are as they were written"
            ),
            "doctor": CommandEntry(
                "server.cli.doctor.doctor", "look at a server the way a client does, with hints"
            ),
            "check": CommandEntry(
                "server.cli.use.check", "try tools by their examples, see what has changed"
            ),
            "skills": CommandEntry("server.cli.use.skills", "make, check and query skills that are text"),
            "facilitator": CommandEntry(
                "server.cli.money.facilitator", "try payments out, with worthless coins"
            ),
        },
        "who may come in": {
            "claim": CommandEntry("server.cli.manage.claim", "show the owner-claim link"),
            "pending": CommandEntry("server.cli.manage.pending", "list the logins that wait for approval"),
            "approve": CommandEntry("server.cli.manage.approve", "approve a login by its code"),
            "deny": CommandEntry("server.cli.manage.deny", "deny a login by its code"),
            "sessions": CommandEntry("server.cli.manage.sessions", "list what is logged in"),
            "revoke": CommandEntry("server.cli.manage.revoke", "end logins"),
            "invite": CommandEntry("server.cli.manage.invite", "make a link for somebody new"),
            "users": CommandEntry("server.cli.manage.users", "list people, and change what they may"),
            "clients": CommandEntry("server.cli.manage.clients", "add, list and disable client programs"),
            "api-keys": CommandEntry("server.cli.manage.api_keys", "make, list and revoke keys for machines"),
        },
        "what calls cost": {
            "plans": CommandEntry("server.cli.money.plans", "put people on a plan, and end it"),
            "ledger": CommandEntry(
                "server.cli.money.ledger", "show, export and check the books; refund and grant"
            ),
            "vouchers": CommandEntry(
                "server.cli.money.vouchers", "make, list and revoke codes that are worth money"
            ),
        },
        "from a terminal": {
            "status": CommandEntry("server.cli.manage.status", "show the server here, and your logins"),
            "login": CommandEntry("server.cli.use.login", "log in to a server, by code or browser"),
            "logout": CommandEntry("server.cli.use.logout", "end a login and forget it"),
            "whoami": CommandEntry("server.cli.use.whoami", "show who you are, and where"),
            "token": CommandEntry("server.cli.use.token", "print a fresh access token"),
            "tools": CommandEntry("server.cli.use.tools", "list what a server can do"),
            "call": CommandEntry("server.cli.use.call", "call a tool"),
            "snippets": CommandEntry("server.cli.use.snippets", "print a program that calls a tool"),
            "import": CommandEntry("server.cli.use.import_server", "make a mock of a server that runs"),
            "mock": CommandEntry("server.cli.use.mock", "compare and copy mocks"),
            "connect": CommandEntry(
                "server.cli.use.connect", "bridge a client that speaks stdio to a server"
            ),
            "mcp": CommandEntry("server.cli.use.mcp", "give servers names"),
            "wallet": CommandEntry(
                "server.cli.money.wallet", "keep a key to pay with, and what it may spend"
            ),
            "verify-receipt": CommandEntry(
                "server.cli.money.verify_receipt", "check what a server gave for a call that cost money"
            ),
            "install": CommandEntry(
                "server.cli.use.install", "put a server into Claude, Cursor, VS Code, Codex …"
            ),
            "uninstall": CommandEntry(
                "server.cli.use.uninstall", "take it out again; or see what is left here"
            ),
        },
        "this program": {
            "service": CommandEntry("server.cli.this_program.service", "have systemd run the server"),
            "upgrade": CommandEntry(
                "server.cli.this_program.upgrade", "see whether there is a newer version"
            ),
            "completion": CommandEntry(
                "server.cli.this_program.completion", "complete commands in bash, zsh or fish"
            ),
            "man": CommandEntry("server.cli.this_program.man", "show the manual page, or print it"),
            "help": CommandEntry("server.cli.this_program.help", "explain a command, or list them all"),
            "version": CommandEntry("server.cli.this_program.version", "name this version"),
        },
    }
)
COMMANDS: Final[Mapping[str, CommandEntry]] = MappingProxyType(
    {name: entry for section in SECTIONS.values() for name, entry in section.items()}
)


# What click says of an option's default and of a number's bounds.
_EXTRA: Final = re.compile(r" *\[(?:default: ([^;\]]+))?(?:; )?(?:([^\s;\]]+)<=x<=([^\s\]]+))?\]$")


# And of what was typed: several that it is like, a number out of bounds, a word that is none of some.
_SEVERAL: Final = re.compile(r",? ?\(Did you mean one of: (.+?)\?\)")
_RANGE: Final = re.compile(r"is not in the range (?:([^\s<]+)<=)?x(?:<=(\S+?))?(?=\.|$)")
_CHOICE: Final = re.compile(r"'([^']*)' is not one of ((?:'[^']*'(?:, )?)+)")


def _in_our_voice(found: re.Match[str]) -> str:
    usual, lowest, highest = found.groups()
    parts = [f"{usual} unless told"] if usual else []
    parts += [f"{lowest} to {highest}"] if lowest else []
    return f" ({'; '.join(parts)})"


def spoken(term: str, text: str) -> tuple[str, str]:
    """A row of a table of options as help says it: what is typed, and what it is for."""
    text = _EXTRA.sub(_in_our_voice, text).replace(" unless told) (", " unless told; ")
    return term, "show this help" if term.endswith("--help") else text


class _Formatter(click.HelpFormatter):
    """Click's help in our voice."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix="usage: ")

    def write_heading(self, heading: str) -> None:
        both = terminal.is_terminal(sys.stdout) and terminal.is_terminal(sys.stderr)  # it may go to either
        shown = terminal.paint(heading.lower(), "bold", sys.stdout) if both else heading.lower()
        self.write(f"{'':>{self.current_indent}}{shown}:\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([spoken(*row) for row in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class _Table(click.Group):
    """The commands of the table above, each imported when it is called."""

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            raise click.NoSuchCommand(args[0], possibilities=get_close_matches(args[0], COMMANDS, 1), ctx=ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (terminal.CliError, ClientError) as error:  # told when this context is gone
            if error.hint:
                error.hint = hints.for_the_same(error.hint, hints.meant_here())
            raise

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("ostiary puts a door in front of your agent: MCP over HTTP, with its own login\n\n")
        formatter.write_usage("ostiary", "COMMAND …")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), entry.help) for name, entry in commands.items()])
        formatter.write("\n`ostiary COMMAND --help` explains a command, `ostiary --version` names this one\n")


def load(name: str) -> click.Command:
    """A command of the table, in our voice."""
    return _voiced(_load(COMMANDS[name].module))


def _load(module: str) -> click.Command:
    return cast("click.Command", import_module(module).command)


def _voiced(command: click.Command) -> click.Command:
    command.context_class = _Context
    command.options_metavar = "[options]"
    if isinstance(command, click.Group):
        command.subcommand_metavar = "COMMAND …"
        for child in command.commands.values():
            # Whole: click would cut it after 45 characters.
            child.short_help = child.short_help or (child.help or "").partition(".")[0] or None
            _voiced(child)
    return command


def _smoke_test(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        code = _voiced(_load("server.cli.this_program.smoke")).main(
            [], "ostiary --smoke-test", standalone_mode=False
        )
        ctx.exit(code if isinstance(code, int) else 0)


@click.command(
    cls=_Table, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@terminal.version_option
@click.option(
    "--smoke-test",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_smoke_test,
    help="try out, on this machine alone, that the program is whole",
)
@click.pass_context
def root(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        terminal.out(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code. Everything that goes wrong is told here, in one voice."""
    # A character that the terminal cannot show must not end a command.
    for stream in (sys.stdout, sys.stderr):
        cast("Any", stream).reconfigure(errors="replace")
    try:
        code: object = root.main(list(arguments), "ostiary", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except terminal.Interrupted as stopped:
        return stopped.exit_code
    except (click.Abort, KeyboardInterrupt):
        return terminal.EXIT_INTERRUPTED
    except BrokenPipeError:
        return _quiet_pipe()
    except SystemExit:  # click's own answer to a pipe that broke inside a command, and to nothing else
        return _quiet_pipe()
    except click.exceptions.NoArgsIsHelpError as error:  # its message is the whole help
        terminal.say(error.format_message())
        return terminal.EXIT_MISUSED
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "ostiary"
        terminal.error(_lowered(error.format_message()), hint=f"{command} --help")
        return terminal.EXIT_MISUSED
    except click.ClickException as error:
        terminal.error(_lowered(error.format_message()))
        return error.exit_code
    except terminal.CliError as error:
        terminal.error(str(error), hint=error.hint)
        return error.exit_code
    except ClientError as error:
        terminal.error(str(error), hint=error.hint)
        return terminal.EXIT_FAILED
    except OSError as error:  # trouble of this machine: a full disk under the output, say
        where = f"{error.filename}: " if error.filename is not None else ""
        terminal.error(where + (error.strerror or type(error).__name__).lower())
        _sink()
        return terminal.EXIT_FAILED
    except Exception as error:  # a bug: named, not dumped, unless somebody asks
        if os.environ.get("OSTIARY_DEBUG"):
            import traceback

            traceback.print_exception(error)
        terminal.error(
            f"internal error: {type(error).__name__}",
            hint="this is a bug; OSTIARY_DEBUG=1 shows where it happened",
        )
        return terminal.EXIT_FAILED


def _from_to(lowest: str | None, highest: str | None) -> str:
    if lowest and highest:
        return f"from {lowest} to {highest}"
    return f"{lowest} or more" if lowest else f"at most {highest}"


def _questioned(found: re.Match[str]) -> str:
    """A choice that there is not, with the one that it is like."""
    from difflib import get_close_matches

    near = get_close_matches(found[1], re.findall(r"'([^']*)'", found[2]), n=1)
    return found[0] + (f". Did you mean '{near[0]}'?" if near else "")


def _lowered(message: str) -> str:
    """Click's sentences in our voice."""
    message = re.sub(r"\s+", " ", message)  # choices come one a line
    message = _SEVERAL.sub(lambda found: f". Did you mean {terminal.either(found[1].split(', '))}?", message)
    message = _RANGE.sub(lambda found: f"is not {_from_to(*found.groups())}", message)
    message = _CHOICE.sub(_questioned, message)
    parts = [part.strip() for part in message.replace("? ", "?. ").split(". ") if part.strip()]
    return ", ".join(part[:1].lower() + part[1:].rstrip(".") for part in parts)


def _quiet_pipe() -> int:
    """Whoever read our output has seen enough. The interpreter would complain when it flushes: give it a sink."""
    _sink()
    return terminal.EXIT_BROKEN_PIPE


def _sink() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
