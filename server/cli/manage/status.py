"""`ostiary status`: is a server running here and how is it, and where is this user logged in."""

from __future__ import annotations

import os
import sys
import time
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from server.cli import local, terminal
from server.cli.manage import bookcheck
from server.cli.manage.nodes_told import node_hints, node_lines
from server.cli.terminal import clean, json_option, out, paint

if TYPE_CHECKING:
    from server.client.token_file import StoredLogin

# Of those who were told to wait: the ones most often are whom an owner looks for.
HELD_BACK_SHOWN = 3
# Of each server, of what its agents have and cannot be offered.
LEFT_OUT_SHOWN = 3

# state → what it means, in the words of the table
STATES = {
    "fresh": "good",
    "renewable": "good, renewed when used",
    "ended": "ended",
}


@click.command("status")
@local.which_server
@click.option("--ready", is_flag=True, help="only say whether the server here is ready, by the exit code too")
@json_option
def command(ready: bool, as_json: bool) -> int:
    """Show the server of this machine, and the logins from here.

    Nothing is asked over the network. Ends with 0 if a server is running here or a login is good, with 1 if neither; with --ready
    with 0 if a server is running here and its store is well.
    """
    server, why = _server()
    if ready:
        return _ready(server, why, as_json=as_json)
    logins = _logins()
    if as_json:
        terminal.out_json({"server": server, "logins": logins})
    else:
        _show_server(server, why)
        out()
        _show_logins(logins)
        for hint in _hints(server, logins):
            terminal.say_hint(hint)
    good = server is not None or any(login["state"] != "ended" for login in logins)
    return 0 if good else terminal.EXIT_FAILED


def _server() -> tuple[dict[str, Any] | None, str]:
    """What the running server says of itself; None, and why, where there is none. Bad settings are an error all the same."""
    try:
        return dict(local.ask("status")), ""
    except terminal.CliError as error:
        if error.exit_code == terminal.EXIT_MISUSED:
            raise
        return None, str(error)


def _ready(server: dict[str, Any] | None, why: str, *, as_json: bool) -> int:
    """For whoever watches over it."""
    trouble: str | None = why
    if server is not None:
        trouble = server["store"]["problem"] if "store" in server else None
    if as_json:
        terminal.out_json({"ready": not trouble, "why": trouble or None})
    else:
        out(f"not ready: {clean(trouble)}" if trouble else "ready")
    return terminal.EXIT_FAILED if trouble else 0


def _logins() -> list[dict[str, Any]]:
    from server.client.named_servers import Places
    from server.client.token_file import TokenFile, token_directory, wall_clock

    now, directory = wall_clock(), token_directory(os.environ)
    names = {url: name for name, url in Places(directory).all().items()}
    return [
        {
            "url": login.url,
            "name": names.get(login.url),
            "scope": login.scope,
            "state": _state(login, now),
            "expires_at": login.expires_at,
        }
        for login in TokenFile(directory).all()
    ]


def _state(login: StoredLogin, now: int) -> str:
    if login.fresh(now):
        return "fresh"
    return "renewable" if login.refresh_token is not None else "ended"


def _show_server(server: dict[str, Any] | None, why: str) -> None:
    if server is None:
        terminal.facts([("server", f"none ({clean(why)})")])
        return
    origin = str(server["origin"])
    pairs = [("server", f"ostiary {server['version']} at {origin}, for {_age(server['started_at'])}")]
    pairs += [
        (f"  {name}" if len(server["paths"]) > 1 else "endpoint", f"{origin}{path}")
        for name, path in server["paths"].items()
    ]
    pairs.append(("login", _auth(server)))
    if "people" in server:
        pairs.append(("people", _counted(server)))
        waiting = server["waiting"]
        pairs.append(("waiting", _waiting(waiting)))
        if server["key_created_at"] is not None:
            pairs.append(("signing key", f"{_age(server['key_created_at'])} old"))
    pairs += _workers(server.get("workers"))
    pairs += _day(server.get("day"))
    for agent in server.get("agents") or ():
        where = f", in worker {', '.join(map(str, agent['workers']))} only" if agent.get("workers") else ""
        wrong = f"out of order for {_age(agent['since'])}{where}: {agent['words']}"
        pairs.append((f"agent {agent['name']}", wrong))
        pairs += _hit(agent)
    pairs += _certificate(server.get("certificate"))
    if server.get("clock") is not None:
        ahead, waits = (terminal.duration(server["clock"][name] / 1000) for name in ("ahead_ms", "waits_ms"))
        pairs.append(
            (
                "clock",
                f"{ahead} beyond the last sweep: nothing is swept for another {waits}, unless it is set back",
            )
        )
    if server.get("trail") is not None:
        altered = (
            f"is not as it was written, since row {server['trail']['seq']} at the latest: ostiary verify"
        )
        pairs.append(("audit trail", altered))
    elif server.get("trail_acknowledged"):
        pairs.append(("audit trail", bookcheck.acknowledged(server["trail_acknowledged"], "row")))
    if server.get("ledger") is not None:
        altered = f"is not as it was written, since movement {server['ledger']['seq']} at the latest: ostiary verify"
        pairs.append(("ledger", altered))
    elif server.get("ledger_acknowledged"):
        pairs.append(("ledger", bookcheck.acknowledged(server["ledger_acknowledged"], "movement")))
    if server.get("money") is not None:
        pairs += _money(server["money"])
    pairs += _settings(server.get("settings"))
    if server.get("held_back"):
        pairs.append(("held back", _held_back(server["held_back"])))
    for each in server.get("upstreams") or ():
        if (trouble := each["trouble"]) is not None:
            pairs.append((f"upstream {each['name']}", f"{trouble['words']} (for {_age(trouble['since'])})"))
            pairs += _hit(each)
        elif each.get("revision"):
            pairs.append((f"upstream {each['name']}", f"MCP {each['revision']}"))
    left: dict[str, list[str]] = server.get("left_out") or {}
    for name, left_out in left.items():
        more = len(left_out) - LEFT_OUT_SHOWN
        said = [
            *left_out[:LEFT_OUT_SHOWN],
            *([f"and {more} more: ostiary upstream list"] if more > 0 else []),
        ]
        pairs += [(f"left out of {name}", each) for each in said]
    pairs.append(("data", str(server["data_dir"])))
    pairs += node_lines(server)
    if "store" in server:
        pairs.append(("store", _stored(server["store"])))
    if server.get("backups") is not None:
        pairs.append(("back-up", _backed_up(server["backups"])))
    # Also what the server says may name a command.
    terminal.facts([(name, clean(terminal.as_started(value))) for name, value in pairs])


def _day(day: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What came of the calls of the last 24 hours."""
    if day is None:  # a server of another version, or a store that cannot be read
        return []
    calls, failed, slowest = day["calls"], day["failed"], day["slowest"]
    if not calls:
        return [("last 24 hours", "no calls")]
    from server.cli.manage.calls import took
    from server.console.overview.outage_effects import percent

    said = f"{calls} call{'' if calls == 1 else 's'}, "
    said += f"{failed} failed ({percent(failed, calls)} %)" if failed else "none failed"
    if slowest is not None:
        said += f", slowest {slowest['tool']} (95 % within {took(slowest['p95'])})"
    return [("last 24 hours", said)]


def _hit(agent: dict[str, Any]) -> list[tuple[str, str]]:
    """How many calls it cost, and whose."""
    from server.console.overview.outage_effects import hit_as_told

    said = hit_as_told(agent)
    return [("", said)] if said else []


def _settings(state: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Only where those that are written are not those that are served."""
    if state is None:
        return []
    if state["problems"]:
        words = "; ".join(state["problems"])
        return [
            (
                "settings",
                f"not as they are written now, but as they were {_age(state['read_at'])} ago: {words}",
            )
        ]
    if state["waits"]:
        return [("settings", f"these count from the next start: {', '.join(state['waits'])}")]
    return []


def _certificate(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    from server.cli.manage import certificate

    pairs = [("certificate", certificate.certificate_line(found))]
    trouble = found.get("trouble") or {"words": found.get("problem")}
    if trouble["words"]:
        pairs.append(("", f"{trouble['words']}: ostiary certificate status"))
    if found.get("ahead_seconds"):
        pairs.append(("", certificate.clock_line(found["ahead_seconds"])))
    return pairs


def _auth(server: dict[str, Any]) -> str:
    return "nobody has to log in" if server["auth"] == "none" else "everybody has to log in (OAuth)"


def _counted(server: dict[str, Any]) -> str:
    people, logins = server["people"], server["logins"]
    # Of very many not all are counted.
    than, then = (("more than " if server.get(more) else "") for more in ("more_people", "more_logins"))
    known = f"{than}{people} {'person' if people == 1 else 'people'}"
    if server.get("unclaimed"):
        known = "nobody has claimed it yet"
    return f"{known}, {then}{logins} login{'' if logins == 1 else 's'}"


def _money(money: dict[str, Any]) -> list[tuple[str, str]]:
    from server.lib.money.amounts import shown

    pairs = [("income", f"{shown(money['today'])} today, {shown(money['month'])} this month (UTC)")]
    waiting = money["unsettled"]
    if waiting["count"]:
        count, unknown = waiting["count"], waiting["unknown"]
        said = f"{count} without an outcome, the oldest for {_age(waiting['oldest_at'])}"
        pairs.append(("payments", f"{said}; of {unknown} nobody could say" if unknown else said))
    return pairs


def _stored(store: dict[str, Any]) -> str:
    ago = store["wrote_seconds_ago"]
    told = store["problem"] or (
        "well" if ago is None else f"well, last written to {terminal.duration(ago)} ago"
    )
    warned = f"; {store['warning']}" if store.get("warning") else ""  # one of before has none
    waits = (
        f", {store['waiting']} waiting for {store['oldest_waits_seconds']:.0f} s" if store["waiting"] else ""
    )
    refused = sum(store["refused"].values())
    failed = f", {refused} write{'' if refused == 1 else 's'} refused since the start" if refused else ""
    # The room of a database is its server's to know.
    where = "" if store.get("confirmed_seconds_ago") is None else " in the data directory"
    return f"{told}{waits}{failed}, {terminal.size(store['free_bytes'])} free{where}{warned}"


def _backed_up(backups: dict[str, Any]) -> str:
    made = "none yet" if backups["made_at"] is None else f"made {_age(backups['made_at'])} ago"
    if backups["failed_at"] is None:
        return f"{made}, due every {backups['every_hours']} h"
    return f"failed {_age(backups['failed_at'])} ago: {backups['reason']}; the last one: {made}"


def _held_back(found: list[dict[str, Any]]) -> str:
    """Who was told to wait in the last hour, and by which limit."""
    first = [
        f"{each.get('name') or each['who']} {each['times']} × ({each['limit']})"
        for each in found[:HELD_BACK_SHOWN]
    ]
    more = len(found) - len(first)
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _age(millis: int) -> str:
    return terminal.duration(time.time() - millis / 1000)


def _waiting(count: int) -> str:
    return "nobody" if not count else f"{count} login{'' if count == 1 else 's'} for approval"


def _show_logins(logins: list[dict[str, Any]]) -> None:
    if not logins:
        terminal.facts([("logins", "none from here")])
        return
    rows: list[tuple[str, ...]] = []
    for login in logins:
        state = paint(STATES[login["state"]], "red" if login["state"] == "ended" else "green", sys.stdout)
        rows.append((login["url"], login["name"] or "", state))
    if any(login["name"] for login in logins):
        lines = terminal.table(("logged in at", "name", "state"), rows)
    else:
        lines = terminal.table(("logged in at", "state"), [(url, state) for url, _, state in rows])
    for line in lines:
        out(terminal.cut(line, terminal.width(sys.stdout)))


def _failed_today(server: dict[str, Any]) -> bool:
    day: dict[str, Any] | None = server.get("day")
    return day is not None and bool(day["failed"])


def _hints(server: dict[str, Any] | None, logins: list[dict[str, Any]]) -> list[str]:
    hints: list[str] = []
    if server is not None and server.get("store", {}).get("hint"):
        hints.append(server["store"]["hint"])
    hints += [] if server is None else node_hints(server)
    if server is not None and server.get("backups") is not None and server["backups"]["hint"]:
        hints.append(server["backups"]["hint"])
    if server is not None and server.get("money") is not None and server["money"]["unsettled"]["unknown"]:
        hints.append("ostiary ledger unsettled lists the payments of which nobody knows what became")
    if server is not None and server.get("waiting"):
        hints.append("ostiary pending, then ostiary approve CODE")
    elif server is not None and server.get("unclaimed"):
        hints.append("ostiary claim shows the link that makes you its owner")
    if server is not None and (_failed_today(server) or server.get("agents")):
        hints.append("ostiary calls --failed shows which calls failed, and why")
    ended = [login["url"] for login in logins if login["state"] == "ended"]
    if ended or not logins:
        here = [f"{server['origin']}{next(iter(server['paths'].values()))}"] if server is not None else []
        wanted = [*ended, *here, "URL"][0]
        hints.append(f"ostiary login {quote(wanted)}")
    return hints


def _workers(workers: list[dict[str, Any]] | None) -> list[tuple[str, str]]:
    """Nothing where one process serves."""
    if not workers:
        return []
    serve = sum(1 for each in workers if each["state"] == "serving" and each["answers"])
    much = (
        f"{serve} processes serve" if serve == len(workers) else f"{serve} of {len(workers)} processes serve"
    )
    return [("workers", much), *((f"  worker {each['worker']}", _worker(each)) for each in workers)]


def _worker(worker: dict[str, Any]) -> str:
    again = worker["restarts"]
    ended = (
        f"; started again {again} time{'' if again == 1 else 's'}, last after {worker['ended']}"
        if again
        else ""
    )
    if worker["state"] == "waiting":
        return clean(f"ended with {worker['ended']}, and is started again in a moment")
    since = "" if worker["since"] is None else f", for {_age(worker['since'])}"
    if worker["state"] == "serving" and not worker["answers"]:
        return clean(f"does not answer (process {worker['pid']}{since}){ended}")
    does = {"serving": "serves", "starting": "is starting"}.get(worker["state"], worker["state"])
    return clean(f"{does} (process {worker['pid']}{since}){ended}")
