"""The steps of `ostiary doctor` about the machine of a server: its settings, its data directory, and what the running server says of itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from server.cli import local, terminal
from server.cli.hints import meant_here
from server.cli.terminal import clean
from server.client.check_step import CheckStep, left_out_step, names_step, old_names_step
from server.lib.own_files import open_to_others

if TYPE_CHECKING:
    from server.settings.resolved_settings import Resolved
    from server.settings.settings_reader import ConfigInvalid


def examine_machine(add: Callable[[CheckStep], None], *, store: str | None) -> str | None:
    """Examine settings and data directory of the server on this machine; return the URL to go on with, or None."""
    from server.admin.control import NotRunning
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
        add(_invalid(invalid, "put right what is listed"))
        return None
    status = _ask_status(resolved.data_dir)
    if lacking is None:
        # The server that runs may have been told of another file.
        none = (
            "none found, the built-in ones are looked at: --config FILE for those that the server was started with"
            if isinstance(status, dict)
            else "none written, the built-in ones are used"
        )
        add(CheckStep.ok("settings", str(resolved.source) if resolved.source else none))
    else:  # which a server that runs already may have, or may have had
        add(_invalid(lacking, "put right what is listed; a variable must be set where the server is started"))
    for step in (*_programs(resolved), _data_directory(resolved.data_dir, status)):
        add(step)
    steps: Iterator[CheckStep] = iter(())
    if isinstance(status, dict):
        steps = _of_server(resolved, status)
    elif isinstance(status.__cause__, NotRunning):
        steps = _without_server(resolved, whole=lacking is None)
    for step in steps:
        add(step)
    # A running server knows best where it listens: a flag may have moved it for one run.
    known = status.get("origin") if isinstance(status, dict) else None
    origin = known if isinstance(known, str) else resolved.canonical_issuer(resolved.config.port)
    return f"{origin}{next(iter(resolved.paths.values()))}"


def _of_server(resolved: Resolved, status: dict[str, Any]) -> Iterator[CheckStep]:
    yield _self_test(resolved.data_dir)
    if "store" in status:
        yield _store(status["store"])
        yield from _database(resolved.data_dir, status)
    if (certificate := status.get("certificate")) is not None:
        from server.cli.doctor.doctor_address import served_certificate_step

        yield served_certificate_step(certificate)
    for refused in cast("dict[str, list[str]]", status.get("refused_names") or {}).values():
        yield names_step(refused)
    for told in cast("dict[str, dict[str, Any]]", status.get("old_names") or {}).values():
        yield old_names_step(told)
    for left_out in cast("dict[str, list[str]]", status.get("left_out") or {}).values():
        yield left_out_step(left_out)
    if unheard := status.get("unheard_prices"):
        from server.cli.doctor.doctor_money import unheard_step

        yield unheard_step(unheard)
    from server.cli.doctor.doctor_agents import agent_steps

    tried = _tried(resolved.data_dir, status)
    yield from agent_steps(tried.get("upstreams") or [], tried.get("agents"))
    yield from _rules(resolved)
    if status.get("money") is not None:
        yield from _money(resolved.data_dir)


def _without_server(resolved: Resolved, *, whole: bool) -> Iterator[CheckStep]:
    yield from _store_here(resolved)
    if whole:
        from server.cli.doctor.doctor_agents import tried_steps

        yield from tried_steps(resolved)


def _invalid(invalid: ConfigInvalid, hint: str) -> CheckStep:
    for problem in invalid.problems:
        terminal.say(f"  {clean(problem.found)}")
    return CheckStep.failed("settings", str(invalid), hint)


def _ask_status(data_dir: Path) -> dict[str, Any] | terminal.CliError:
    try:
        return cast("dict[str, Any]", local.ask("status", data_dir=str(data_dir)))
    except terminal.CliError as error:
        return error


def _programs(resolved: Resolved) -> list[CheckStep]:
    """Say what programs that the server starts can open, or cannot do."""
    from server.settings.private_paths import program_notices

    return [CheckStep.skipped("programs", notice.words, notice.hint) for notice in program_notices(resolved)]


def _self_test(data_dir: Path) -> CheckStep:
    """Say what the server finds when it holds its own documents against what it does."""
    name = "self-test"
    try:
        problems: list[str] = local.ask("self_test", data_dir=str(data_dir))["problems"]
    except terminal.CliError as error:
        return CheckStep.failed(name, str(error), error.hint)
    if problems:
        return CheckStep.failed(name, "; ".join(problems), "this is a bug, or a broken store")
    return CheckStep.ok(name, "what it announces is what it does, and its key signs")


def _tried(data_dir: Path, status: dict[str, Any]) -> dict[str, Any]:
    """Return what lies behind the server, once it has tried each agent: a connection is opened where there is one."""
    try:
        return cast("dict[str, Any]", local.ask("try_agents", data_dir=str(data_dir)))
    except terminal.CliError:  # a server of another version
        return status


def _money(data_dir: Path) -> list[CheckStep]:
    """Check prices, facilitators, where payments go, and what somebody is shown who has not paid."""
    from server.cli.doctor.doctor_money import money_steps

    try:
        found = local.ask("money", data_dir=str(data_dir))
    except terminal.CliError as error:
        return [CheckStep.failed("prices", str(error), error.hint)]
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
    """Say what a write just now has shown."""
    if store["problem"]:
        return CheckStep.failed("store", store["problem"], store["hint"] or "see the server's log")
    if store.get("warning"):  # one of before has none
        return CheckStep.failed("store", store["warning"], goes_on=True)
    free = terminal.size(store["free_bytes"])
    return CheckStep.ok("store", f"reads and writes, {free} free")


def _database(data_dir: Path, status: dict[str, Any]) -> list[CheckStep]:
    """Say how it is for the running server, where it has one: only it may know the address."""
    try:
        told = local.ask("database", data_dir=str(data_dir))
    except terminal.CliError:  # a server of another version
        return []
    if told is None:
        return []
    from server.cli.doctor.doctor_postgres import steps_of_server

    return steps_of_server(told, boot_id=status["node"]["boot_id"])


def _store_here(resolved: Resolved) -> list[CheckStep]:
    """Say how it is without one. A store that the settings name and that cannot be read was said of them."""
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
    name = "data directory"
    try:
        found = path.stat()
    except FileNotFoundError:
        return CheckStep.skipped(name, f"{path} is not there yet", "`ostiary serve` makes it")
    except OSError as error:
        why = (error.strerror or "unknown error").lower()
        return CheckStep.failed(name, f"{path}: {why}", "run this as the user of the server")
    if not stat.S_ISDIR(found.st_mode):
        return CheckStep.failed(name, f"{path} is no directory", "name another: --data-dir")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return CheckStep.failed(name, f"{path} may not be used", "run this as the user of the server")
    if open_to_others(found):
        return CheckStep.failed(name, f"{path} is open to others", f"chmod 700 {quote(str(path))}")
    if isinstance(status, terminal.CliError):
        return CheckStep.failed(name, str(status), status.hint)
    return CheckStep.ok(name, f"{path}, held by a running server")
