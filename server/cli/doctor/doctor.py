"""`ostiary doctor [URL]`: what a client would see of a server, step by step. Without a URL: this machine's own server,
with its settings and data directory first."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, cast

import click

from server.cli import local, terminal
from server.cli.hints import meant_here
from server.cli.terminal import clean, json_option, out, paint
from server.lib.own_files import open_to_others

if TYPE_CHECKING:
    from server.client.server_checkup import CheckStep, LookFurther
    from server.settings.resolved_settings import Resolved
    from server.settings.settings_reader import ConfigInvalid

# state → mark, its plain form, colour
MARKS: Final = {
    "ok": ("✓", "ok", "green"),
    "failed": ("✗", "no", "red"),
    "skipped": ("–", "--", "yellow"),
}
NAME_WIDTH = len("data directory")
LEFT = 2 + NAME_WIDTH + 2


@click.command("doctor")
@click.argument("url", required=False)
@click.option(
    "--store",
    metavar="WHERE",
    help="without a URL: the database that is to be served on, as in `serve --store`",
)
@local.which_server
@json_option
def command(url: str | None, store: str | None, as_json: bool) -> int:
    """Look at the server at URL the way a client does, step by step, with hints.

    Without a URL: at the server of this machine, its settings and data directory included.
    """
    from server.cli.use import target
    from server.client.server_checkup import examine

    report = _Report(quiet=as_json)
    local_url = _examine_machine(report, store=store) if url is None else target.meant(url).url
    report.begin(local_url)

    async def main(address: str) -> None:
        # Of the server of this machine more is known than anybody is told.
        further = None if url is None else _what_it_sells()
        steps = examine(address, target.token_file(), further=further)
        try:
            async for step in steps:
                report.add(_of_this_machine(step, address) if url is None else step)
        finally:
            await steps.aclose()

    if local_url is not None:
        address = local_url
        terminal.run_async(lambda: main(address))
    return report.end(local_url)


def _what_it_sells() -> LookFurther:
    from server.cli.doctor.doctor_seller import seller_steps

    return seller_steps


def _of_this_machine(step: CheckStep, address: str) -> CheckStep:
    """Name the setting that says where this machine's own server is, where nobody can reach it there."""
    from msgspec.structs import replace

    from server.lib.oauth_client.addresses import is_loopback

    if step.name != "connection" or step.state != "failed" or is_loopback(address):
        return step
    named = (
        "the address is what issuer says in the settings of this server: it must be the one that callers type"
    )
    return replace(step, hint=f"{step.hint}; {named}" if step.hint else named)


class _Report:
    """The steps so far; drawn as they come, or kept for JSON."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._steps: list[CheckStep] = []

    def begin(self, url: str | None) -> None:
        if url is not None and not self._quiet:
            if self._steps:
                out()
            out(paint(url, "bold", sys.stdout))

    def add(self, step: CheckStep) -> None:
        self._steps.append(step)
        if self._quiet:
            return
        mark, plain, colour = MARKS[step.state]
        drawn = paint(mark if terminal.can_draw(sys.stdout) else plain, colour, sys.stdout)
        # Broken between words, in their own column.
        first, *rest = terminal.wrapped(clean(terminal.as_started(step.detail)), sys.stdout, left=LEFT)
        out(f"{drawn} {step.name.ljust(NAME_WIDTH)}  {first}")
        for line in rest:
            out(f"{' ' * LEFT}{line}")
        if step.hint:
            out(f"  {paint('hint:', 'cyan', sys.stdout)} {clean(terminal.as_started(step.hint))}")
        sys.stdout.flush()

    def end(self, url: str | None) -> int:
        failed = sum(step.state == "failed" for step in self._steps)
        if self._quiet:
            steps: list[dict[str, Any]] = [
                {"step": step.name, "state": step.state, "detail": step.detail, "hint": step.hint}
                for step in self._steps
            ]
            terminal.out_json({"url": url, "ok": not failed, "steps": steps})
        return terminal.EXIT_FAILED if failed else 0


def _examine_machine(report: _Report, *, store: str | None) -> str | None:
    """Settings and data directory of the server on this machine; the URL to go on with, or None."""
    from server.admin.control import NotRunning
    from server.client.server_checkup import CheckStep
    from server.run.whole_settings import NotHere, read_whole
    from server.settings import settings_reader as settings
    from server.settings.resolved_settings import resolve

    for warning in settings.misspelt(os.environ):
        terminal.say_hint(warning)
    given = meant_here()
    flags = {"data_dir": given.get("--data-dir"), "store": store}
    lacking: NotHere | None = None
    try:
        # What `serve` looks at before it starts.
        file = settings.find_file(given.get("--config"), os.environ)
        try:
            resolved = read_whole(file, os.environ, flags)
        except NotHere as invalid:
            lacking, resolved = invalid, resolve(settings.load(file, os.environ, flags))
    except settings.ConfigInvalid as invalid:
        report.add(_invalid(invalid, "put right what is listed"))
        return None
    status = _ask_status(resolved.data_dir)
    if lacking is None:
        # The server that runs may have been told of another file.
        none = (
            "none found, the built-in ones are looked at: --config FILE for those that the server was started with"
            if isinstance(status, dict)
            else "none written, the built-in ones are used"
        )
        report.add(
            CheckStep(name="settings", state="ok", detail=str(resolved.source) if resolved.source else none)
        )
    else:  # which a server that runs already may have, or may have had
        report.add(
            _invalid(lacking, "put right what is listed; a variable must be set where the server is started")
        )
    for step in _programs(resolved):
        report.add(step)
    report.add(_data_directory(resolved.data_dir, status))
    if isinstance(status, dict):
        report.add(_self_test(resolved.data_dir))
        if "store" in status:
            report.add(_store(status["store"]))
            for step in _database(resolved.data_dir, status):
                report.add(step)
        if (certificate := status.get("certificate")) is not None:
            report.add(_certificate(certificate))
        for refused in cast("dict[str, list[str]]", status.get("refused_names") or {}).values():
            report.add(_refused_names(refused))
        if unheard := status.get("unheard_prices"):
            report.add(_unheard(unheard))
        tried = _tried(resolved.data_dir, status)
        for step in _agents(tried):
            report.add(step)
        for step in _rules(resolved):
            report.add(step)
        if status.get("money") is not None:
            for step in _money(resolved.data_dir):
                report.add(step)
    elif isinstance(status.__cause__, NotRunning):
        for step in _store_here(resolved):
            report.add(step)
        for step in _tried_here(resolved) if lacking is None else ():
            report.add(step)
    # A running server knows best where it listens: a flag may have moved it for one run.
    known = status.get("origin") if isinstance(status, dict) else None
    origin = known if isinstance(known, str) else resolved.canonical_issuer(resolved.config.port)
    return f"{origin}{next(iter(resolved.paths.values()))}"


def _invalid(invalid: ConfigInvalid, hint: str) -> CheckStep:
    from server.client.server_checkup import CheckStep

    for problem in invalid.problems:
        terminal.say(f"  {clean(problem.found)}")
    return CheckStep(name="settings", state="failed", detail=str(invalid), hint=hint)


def _ask_status(data_dir: Path) -> dict[str, Any] | terminal.CliError:
    try:
        return cast("dict[str, Any]", local.ask("status", data_dir=str(data_dir)))
    except terminal.CliError as error:
        return error


def _programs(resolved: Resolved) -> list[CheckStep]:
    """What programs that the server starts can open, or cannot do."""
    from server.client.server_checkup import CheckStep
    from server.settings.private_paths import program_notices

    return [
        CheckStep(name="programs", state="skipped", detail=notice.words, hint=notice.hint)
        for notice in program_notices(resolved)
    ]


def _self_test(data_dir: Path) -> CheckStep:
    """What the server finds when it holds its own documents against what it does."""
    from server.client.server_checkup import CheckStep

    name = "self-test"
    try:
        problems: list[str] = local.ask("self_test", data_dir=str(data_dir))["problems"]
    except terminal.CliError as error:
        return CheckStep(name=name, state="failed", detail=str(error), hint=error.hint)
    if problems:
        return CheckStep(
            name=name, state="failed", detail="; ".join(problems), hint="this is a bug, or a broken store"
        )
    return CheckStep(name=name, state="ok", detail="what it announces is what it does, and its key signs")


def _certificate(found: dict[str, Any]) -> CheckStep:
    from server.cli.doctor.doctor_address import served_certificate_step

    return served_certificate_step(found)


def _refused_names(names: list[str]) -> CheckStep:
    from server.client.check_step import names_step

    return names_step(names)


def _unheard(tools: Mapping[str, Sequence[str]]) -> CheckStep:
    from server.cli.doctor.doctor_money import unheard_step

    return unheard_step(tools)


def _tried(data_dir: Path, status: dict[str, Any]) -> dict[str, Any]:
    """What lies behind the server, once it has tried each agent: a connection is opened where there is one."""
    try:
        return cast("dict[str, Any]", local.ask("try_agents", data_dir=str(data_dir)))
    except terminal.CliError:  # a server of another version
        return status


def _agents(tried: dict[str, Any]) -> list[CheckStep]:
    from server.cli.doctor.doctor_agents import agent_steps

    return agent_steps(tried.get("upstreams") or [], tried.get("agents"))


def _tried_here(resolved: Resolved) -> list[CheckStep]:
    from server.cli.doctor.doctor_agents import tried_steps

    return tried_steps(resolved)


def _money(data_dir: Path) -> list[CheckStep]:
    """Prices, facilitators, where payments go, and what somebody is shown who has not paid."""
    from server.cli.doctor.doctor_money import money_steps
    from server.client.server_checkup import CheckStep

    try:
        found = local.ask("money", data_dir=str(data_dir))
    except terminal.CliError as error:
        return [CheckStep(name="prices", state="failed", detail=str(error), hint=error.hint)]
    return [] if found is None else money_steps(found)


def _rules(resolved: Resolved) -> list[CheckStep]:
    """Hold rules that name programs against the programs that there are."""
    servers = resolved.servers
    if not any(rule.who.program for server in servers for rule in server.policy):
        return []
    from server.cli.manage.policy import claim_steps

    try:
        where = str(resolved.data_dir)
        clients, keys = (local.ask(noun, data_dir=where) for noun in ("clients", "api_keys"))
    except terminal.CliError:
        return []
    return claim_steps(servers, clients, keys)


def _store(store: dict[str, Any]) -> CheckStep:
    """What a write just now has shown."""
    from server.client.server_checkup import CheckStep

    if store["problem"]:
        return CheckStep(
            name="store",
            state="failed",
            detail=store["problem"],
            hint=store["hint"] or "see the server's log",
        )
    if store.get("warning"):  # one of before has none
        return CheckStep(name="store", state="failed", detail=store["warning"], goes_on=True)
    free = terminal.size(store["free_bytes"])
    return CheckStep(name="store", state="ok", detail=f"reads and writes, {free} free")


def _database(data_dir: Path, status: dict[str, Any]) -> list[CheckStep]:
    """How it is for the running server, where it has one: only it may know the address."""
    try:
        told = local.ask("database", data_dir=str(data_dir))
    except terminal.CliError:  # a server of another version
        return []
    if told is None:
        return []
    from server.cli.doctor.doctor_postgres import steps_of_server

    return steps_of_server(told, boot_id=status["node"]["boot_id"])


def _store_here(resolved: Resolved) -> list[CheckStep]:
    """The same without one. What the settings name and cannot be read was said of them."""
    from server.settings.secret_reference import SecretUnreadable, read_secret

    if not resolved.config.store:
        return []
    try:
        read_secret(resolved.config.store)
    except SecretUnreadable:
        return []
    from server.cli.doctor.doctor_postgres import steps_without_server

    return steps_without_server(resolved)


def _data_directory(path: Path, status: dict[str, Any] | terminal.CliError) -> CheckStep:
    from server.client.server_checkup import CheckStep

    name = "data directory"
    try:
        found = path.stat()
    except FileNotFoundError:
        return CheckStep(
            name=name, state="skipped", detail=f"{path} is not there yet", hint="`ostiary serve` makes it"
        )
    except OSError as error:
        why = (error.strerror or "unknown error").lower()
        return CheckStep(
            name=name, state="failed", detail=f"{path}: {why}", hint="run this as the user of the server"
        )
    if not stat.S_ISDIR(found.st_mode):
        return CheckStep(
            name=name, state="failed", detail=f"{path} is no directory", hint="name another: --data-dir"
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return CheckStep(
            name=name,
            state="failed",
            detail=f"{path} may not be used",
            hint="run this as the user of the server",
        )
    if open_to_others(found):
        return CheckStep(
            name=name,
            state="failed",
            detail=f"{path} is open to others",
            hint=f"chmod 700 {quote(str(path))}",
        )
    if isinstance(status, terminal.CliError):
        return CheckStep(name=name, state="failed", detail=str(status), hint=status.hint)
    return CheckStep(name=name, state="ok", detail=f"{path}, held by a running server")
