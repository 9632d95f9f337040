"""The steps of `ostiary doctor` about the PostgreSQL database that the settings lead to: as the running server sees it, or where none runs, as this
one would find it at its start. Loaded where `store` is set.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from server import __version__
from server.cli import terminal
from server.client.check_step import CheckStep, State
from server.cluster.postgres.postgres_look import DatabaseSeen, DatabaseServer, TablesSeen, look
from server.cluster.postgres.postgres_refusals import quoted
from server.cluster.postgres.postgres_session import NOT_DURABLE
from server.console.overview.nodes_seen import NodeStanding, standings
from server.store.jobs import StoreError

if TYPE_CHECKING:
    from server.settings.resolved_settings import Resolved

# Each process has one that writes and one that listens, besides those that read.
BESIDE_READERS: Final = 2
_SLOW_SECONDS: Final = 1.0
_NAMED_NODES: Final = 4
# In docs/scale.md.
_OF_THE_PAGE: Final = "CHANGE-ME"
_NAME: Final = "database"


def steps_without_server(resolved: Resolved) -> list[CheckStep]:
    """Look at it as a start would find it, with nothing changed."""
    from server.cli.spinner import Spinner

    spinner = Spinner(terminal.StatusLine(), "looking at the database")
    reference = _about_the_reference(resolved.config.store)
    outcome = terminal.run_async(
        lambda: spinner.during(lambda: trio.to_thread.run_sync(_looked, resolved, abandon_on_cancel=True))
    )
    if isinstance(outcome, CheckStep):
        return [*reference, outcome]
    return [
        *reference,
        _server(outcome),
        *_durability(outcome.server),
        _tables(outcome, resolved),
        *_nodes(outcome, here=""),
        _connections(outcome.server, resolved),
    ]


def steps_of_server(told: Mapping[str, Any] | None, *, boot_id: str) -> list[CheckStep]:
    """Return what a running server says of it. The server looks at its tables, and says whether it writes, by itself."""
    if told is None:
        return []
    if "seen" not in told:
        return [_failed(str(told["problem"]), told["hint"])]
    try:
        seen = msgspec.convert(dict(told["seen"]), DatabaseSeen)
    except msgspec.ValidationError:  # a server of another version
        return []
    durability = [step for step in _durability(seen.server) if step.name != "durability"]
    return [_server(seen), *durability, *_nodes(seen, here=boot_id), _taken(seen.server)]


def _looked(resolved: Resolved) -> DatabaseSeen | CheckStep:
    from server.cluster.postgres.postgres_certificate import shown_certificate
    from server.run.store_place import way_to_database

    try:
        parameters = way_to_database(resolved.config)
    except StoreError as refused:
        return _failed(str(refused), refused.hint)
    try:
        return look(parameters)
    except StoreError as refused:
        words = str(refused)
        if "certificate verify failed" in words and (shown := shown_certificate(parameters)):
            words = f"{words}; {shown}"
        return _failed(words, refused.hint)


def _failed(detail: str, hint: str | None, *, name: str = _NAME, goes_on: bool = False) -> CheckStep:
    return CheckStep.failed(name, detail, hint or None, goes_on=goes_on)


def _about_the_reference(store: str) -> list[CheckStep]:
    """Warn of a password that others know already, or can read."""
    from server.settings.secret_reference import read_secret

    source, _, name = store.partition(":")
    wrong = partial(_failed, name="store", goes_on=True)
    steps: list[CheckStep] = []
    if f":{_OF_THE_PAGE}@" in read_secret(store).reveal():
        detail = f"the password in {name} is still the one of the documentation, which everybody knows"
        hint = f"make another one: ALTER ROLE … PASSWORD 'NEW' in psql, and the same in {name}"
        steps.append(wrong(detail, hint))
    if source == "file" and _is_open_to_others(Path(name).expanduser().absolute()):
        detail = f"every user of this machine can read {name}, in which the database's password is"
        steps.append(wrong(detail, f"chmod 600 {quote(name)}"))
    return steps


def _is_open_to_others(file: Path) -> bool:
    try:
        return bool(
            file.stat().st_mode & stat.S_IROTH
            and all(folder.stat().st_mode & stat.S_IXOTH for folder in file.parents)
        )
    except OSError:
        return False


def _server(seen: DatabaseSeen) -> CheckStep:
    found = seen.server
    detail = (
        f"PostgreSQL {found.version.split()[0]} on {seen.host}, database {found.database} as {found.role}"
    )
    if found.place != "public":
        detail += f", in the schema {found.place}"
    if found.tls:
        detail += f", by {found.tls}"
    if seen.seconds > _SLOW_SECONDS:
        detail += f"; it took {seen.seconds:.1f} s to connect"
    return CheckStep.ok(_NAME, detail)


def _durability(found: DatabaseServer) -> list[CheckStep]:
    steps: list[CheckStep] = []
    if not found.durable:
        hint = "fsync = on in its postgresql.conf, and reload it"
        steps.append(_failed(NOT_DURABLE, hint, name="durability", goes_on=True))
    nobody = found.standbys_told == found.standbys and not found.standbys_awaited
    if found.awaited and nobody:
        # Nothing is committed until one answers.
        detail = f"every write waits for a standby (synchronous_standby_names = '{found.awaited}'), and none of that name is connected"
        hint = "start that standby, or take its name out of the setting and reload the database server"
        steps.append(_failed(detail, hint, name="standby"))
    elif found.awaited:
        detail = "what is answered is on a standby as well"
        steps.append(CheckStep.ok("standby", detail))
    elif found.standbys:
        follows = "a standby follows" if found.standbys == 1 else f"{found.standbys} standbys follow"
        detail = (
            f"{follows}, and what was answered last may be missing there: synchronous_standby_names is empty"
        )
        steps.append(CheckStep.ok("standby", detail))
    return steps


def _tables(seen: DatabaseSeen, resolved: Resolved) -> CheckStep:
    name, tables, server = "tables", seen.tables, seen.server
    wrong = partial(_failed, name=name)
    if not tables.writable:
        return wrong(
            f"they belong to {tables.belongs_to}, and {server.role} may not write to them",
            f"name {tables.belongs_to} in the address, or make {server.role} their owner: ALTER TABLE … OWNER TO {quoted(server.role)}",
        )
    if tables.problem:
        return wrong(tables.problem, tables.hint)
    if (refusal := _not_these(tables, resolved)) is not None:
        return wrong(str(refusal), refusal.hint)
    if tables.missing and not server.may_create:
        return wrong(
            f"{server.role} may not make tables in the schema {server.place}", _who_may_create(server)
        )
    if not tables.found:
        return CheckStep.ok(name, "none yet: the first start makes them")
    if not tables.missing:
        newer = tables.found > tables.known
        detail = f"schema {tables.found}, " + (
            "of a newer version, with which this one can go on" if newer else "this version's"
        )
        return CheckStep.ok(name, detail)
    older = f"schema {tables.found}, and this version has {tables.known}"
    if tables.belongs_to:
        return wrong(
            f"{older}: only {tables.belongs_to}, whose tables they are, can change them",
            f"name {tables.belongs_to} in the address for this start",
        )
    if not tables.additive and server.writers:
        return wrong(
            f"{older}: they are changed while nobody else uses them, and {_counted(server.writers, 'process', 'processes')} of other nodes {'does' if server.writers == 1 else 'do'}",
            "stop the other nodes first; they do not know the new schema",
        )
    return CheckStep.ok(
        name,
        f"{older}: the next start changes them",
        "make a back-up before: `ostiary backup FILE` shows how",
    )


def _not_these(tables: TablesSeen, resolved: Resolved) -> StoreError | None:
    """Return why a start would not take them, for what is in the data directory."""
    from server.run.store_place import refuse_to_begin_anew
    from server.store.data_directory import DataDirectory
    from server.store.keyfile import open_key

    home = DataDirectory(resolved.data_dir)
    try:
        if tables.fingerprint is not None:
            open_key(
                resolved.config.key_file or home.key_file,
                known_fingerprint=tables.fingerprint,
                random_bytes=_none,
                environment=os.environ,
            )
        elif home.database.exists():
            refuse_to_begin_anew(resolved.config, home.database)
    except StoreError as refusal:
        return refusal
    return None


def _none(count: int) -> bytes:
    raise AssertionError(f"no key is made where a database knows one, and {count} bytes were asked for")


def _who_may_create(server: DatabaseServer) -> str:
    role, database = quoted(server.role), quoted(server.database)
    if server.owner == "pg_database_owner":
        return f'sudo -u postgres psql -c "ALTER DATABASE {database} OWNER TO {role}"'
    return f'sudo -u postgres psql -d {quote(server.database)} -c "GRANT USAGE, CREATE ON SCHEMA {quoted(server.place)} TO {role}"'


def _nodes(seen: DatabaseSeen, *, here: str) -> list[CheckStep]:
    name = "nodes"
    if seen.nodes is None:
        count = seen.server.writers
        return (
            [CheckStep.ok(name, f"{_counted(count, 'process', 'processes')} of other nodes")] if count else []
        )
    found = standings(seen.nodes, here=here)
    alive = [each for each in found if each.standing != "silent"]
    others = [each for each in alive if not each.here]
    silent = [each for each in found if each.standing == "silent" and not each.here]
    said = f"{_counted(len(others), 'other', 'others')} alive" if here else f"{len(alive) or 'none'} alive"
    if others:
        said += f": {_listed(others)}"
    if silent:
        said += f"; silent: {_listed(silent)}"
    return [CheckStep.ok(name, said)]


def _listed(nodes: list[NodeStanding]) -> str:
    named = [_node(each) for each in nodes[:_NAMED_NODES]]
    more = len(nodes) - _NAMED_NODES
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _node(node: NodeStanding) -> str:
    where = (
        node.address if node.address.startswith(f"{node.machine}:") else f"{node.machine} at {node.address}"
    )
    facts = [] if node.versions == (__version__,) else [f"version {', '.join(node.versions)}"]
    if node.standing == "silent":
        facts.append(f"for {terminal.duration(node.quiet_ms / 1000)}")
    elif node.standing != "ready":
        facts.append(node.standing)
    return f"{where} ({', '.join(facts)})" if facts else where


def _connections(server: DatabaseServer, resolved: Resolved) -> CheckStep:
    readers, workers = resolved.config.store_readers, resolved.workers
    wanted = workers * (readers + BESIDE_READERS)
    how = f" ({workers} workers with {readers + BESIDE_READERS} each)" if workers > 1 else ""
    said = f"{server.free} of {server.bound} are free, and this server takes {wanted}{how}"
    state: State = "ok" if wanted <= server.free else "failed"
    return CheckStep(
        name="connections",
        state=state,
        detail=said,
        hint=None if state == "ok" else f"raise {server.bound_by}, or lower `store_readers` or `workers`",
    )


def _taken(server: DatabaseServer) -> CheckStep:
    said = f"{server.free} of {server.bound} are free"
    if server.free:
        return CheckStep.ok("connections", said)
    hint = f"raise {server.bound_by}, or end others: one that is lost cannot be made again"
    return _failed(said, hint, name="connections", goes_on=True)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
