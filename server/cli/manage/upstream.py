"""The commands `ostiary upstream` about the MCP servers behind this one: what each offers, what of it was accepted, and logins there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from server.cli import local, terminal
from server.cli.terminal import clean, paint, say
from server.cli.use.login import asked, login_options
from server.lib.counted import counted

if TYPE_CHECKING:
    from server.client.token_file import StoredLogin


@click.group(help="See, accept and log in to the MCP servers behind this one.")
def command() -> None: ...


def _show_all(found: Sequence[Mapping[str, Any]]) -> None:
    for each in found:
        _show(each)
    if waiting := [each["upstream"] for each in found if each["waiting_count"]]:
        terminal.say_hint(f"ostiary upstream accept {quote(waiting[0])}")


@command.command("list", help="List the upstreams, and what of them waits to be accepted.")
@local.shows(
    _show_all,
    nothing="this server has no upstream",
    hint='an agent of kind = "mcp" in its settings has one',
)
def list_upstreams() -> Any:
    return local.ask("upstreams")


def _show(upstream: Mapping[str, Any]) -> None:
    name = paint(clean(upstream["upstream"]), "bold", sys.stdout)
    terminal.out(f"{name}  {clean(upstream['what'])}")
    terminal.out(f"    {_offered(upstream)}; trust = {upstream['trust']}")
    spoken = f", in MCP {clean(upstream['revision'])}" if upstream.get("revision") else ""
    terminal.out(f"    {_as_whom(upstream)}{spoken}")
    if (trouble := upstream["trouble"]) is not None:
        marked = paint(clean(terminal.as_started(trouble["words"])), "yellow", sys.stdout)
        terminal.out(f"    {marked} (since {local.ago(trouble['since'])})")
    for each in upstream["waiting"]:
        sign = paint("changed" if each["changed"] else "new", "yellow", sys.stdout)
        terminal.out(f"      {sign}  {each['kind']} {clean(each['name'])}, {local.ago(each['since'])}")
    if (more := upstream["waiting_count"] - len(upstream["waiting"])) > 0:
        terminal.out(f"      and {more} more")
    for each in upstream.get("left_out", ()):
        terminal.out(f"      {paint('left out', 'yellow', sys.stdout)}  {clean(each)}")
    for each in upstream.get("pages_ask", ()):
        terminal.out(f"      {clean(each)}")


def _offered(upstream: Mapping[str, Any]) -> str:
    if upstream["seen_at"] is None:
        return "not reached yet"
    if upstream["trust"] == "always":
        return "offers what it likes"
    tools, waiting = upstream["tools"], upstream["waiting_count"]
    said = f"{counted(tools, 'tool')}, {upstream['accepted']} definitions accepted"
    if waiting:
        said += f", {waiting} waiting"
    return said + (f", {upstream['gone']} not offered any more" if upstream["gone"] else "")


def _as_whom(upstream: Mapping[str, Any]) -> str:
    if upstream["identity"] == "nobody":
        return "called without credentials"
    if upstream["identity"] != "login":
        return f"called as its settings say: {clean(upstream['identity'])}"
    if upstream["login"] is None:
        return "called without a login"
    return f"called with the login of {local.ago(upstream['login']['since'])}, by {clean(upstream['login']['by'])}"


@command.command("diff", help="Show what of the upstream NAME waits to be accepted, line by line.")
@click.argument("name")
@click.argument("tools", nargs=-1, metavar="[TOOL]…")
@click.option("--whole", is_flag=True, help="show what is the same, too")
@local.which_server
@terminal.json_option
def show_difference(name: str, tools: tuple[str, ...], whole: bool, as_json: bool) -> None:
    waiting = _waiting(name, tools)
    if as_json:
        terminal.out_json(waiting)
    elif not waiting:
        say("everything it offers was accepted")
    for each in [] if as_json else waiting:
        for line in _drawn(each, whole=whole, stream_out=True):
            terminal.out(line)


@command.command("accept", help="Look at what the upstream NAME offers, and accept it.")
@click.argument("name")
@click.argument("tools", nargs=-1, metavar="[TOOL]…")
@click.option("--all", "everything", is_flag=True, help="all that waits; the same as naming none")
@click.option("--yes", is_flag=True, help="accept without being asked")
@local.which_server
@terminal.json_option
def accept(name: str, tools: tuple[str, ...], everything: bool, yes: bool, as_json: bool) -> None:
    """Show the definitions that wait, ask, and accept what was shown; if the upstream says something else by then, accept nothing."""
    from server.agents.mcp.trust.definitions import is_whole

    if everything and tools:
        raise terminal.Misuse("--all accepts everything: leave it out, or the names")
    waiting = _waiting(name, tools)
    if not waiting:
        if as_json:
            terminal.out_json({"upstream": name, "accepted": [], "waiting": 0})
        else:
            say("everything it offers was accepted")
        return
    acceptable = [each for each in waiting if is_whole(each["new"])]
    if not as_json or not yes:
        for each in waiting:
            for line in _drawn(each, whole=False, stream_out=False):
                say(line)
        changed = sum(bool(each["old"]) for each in acceptable)
        say(f"{len(acceptable)} to accept, {changed} of them changed since they were accepted last")
    if not acceptable:
        raise terminal.CliError(
            "nothing was accepted: what waits is too large to be shown whole",
            hint='leave it out: tools = ["!NAME"] of the upstream',
        )
    upstream, seal = waiting[0]["upstream"], waiting[0]["seal"]
    question = f"may {clean(upstream)} say this to those who call it?"
    terminal.agree_or_end(question, yes=yes, otherwise="nothing was accepted")
    arguments = {"upstream": upstream, "tools": list(tools) or None, "seal": seal}
    done = local.ask("upstreams.accept", arguments)
    terminal.out_json(done) if as_json else _show_done(done)


def _show_done(done: Mapping[str, Any]) -> None:
    which = "accepted" if "accepted" in done else "forgotten"
    terminal.out(f"{which}: {counted(len(done[which]), 'definition')} of {clean(done['upstream'])}")


@command.command(
    "forget", help="Take acceptance back: what is forgotten is not offered until it is accepted again."
)
@click.argument("name")
@click.argument("tools", nargs=-1, metavar="[TOOL]…")
@click.option("--all", "everything", is_flag=True, help="all that was accepted of it")
@local.shows(_show_done)
def forget(name: str, tools: tuple[str, ...], everything: bool) -> Any:
    if everything == bool(tools):
        raise terminal.Misuse("name what is to be forgotten, or --all of it")
    return local.ask("upstreams.forget", {"upstream": name, "tools": list(tools) or None})


@command.command("login", help="Log in to the upstream NAME, for this server to call it with.")
@click.argument("name")
@login_options
@local.shows(local.says("logged in", "upstream"))
def log_in(name: str, no_browser: bool, **wanted: Any) -> Any:
    """Log in to an upstream, and hand the login to the server, which keeps it sealed and refreshes it.

    Nothing of the login stays with the person who typed this.
    """
    from server.agents.mcp.trust.login_rows import handed_over

    place = local.ask("upstreams.place", {"upstream": name})
    login = _obtain(place["url"], asked(no_browser=no_browser, **wanted), opens=not no_browser)
    return local.ask("upstreams.login", {"upstream": place["upstream"], "login": handed_over(login)})


def _obtain(url: str, wish: Any, *, opens: bool) -> StoredLogin:
    from server.cli.browser import would_be_seen
    from server.cli.use import target
    from server.cli.use.login_screen import LoginScreen
    from server.client.http_exchange import open_client
    from server.client.signing_in import obtain
    from server.lib.oauth_client.addresses import is_loopback

    seen = opens and would_be_seen(os.environ, sys.platform)
    screen = LoginScreen(local=is_loopback(url), opens=seen)

    async def main() -> StoredLogin:
        async with open_client() as client:
            return await obtain(client, target.token_file(), url, screen=screen, wish=wish)

    try:
        return terminal.run_async(main)
    finally:
        screen.clear()


local.add_act(
    command,
    "logout",
    "Forget the login at the upstream NAME.",
    act="upstreams.logout",
    done="logged out",
    argument="upstream",
    metavar="NAME",
)


def _waiting(name: str, tools: Sequence[str]) -> list[dict[str, Any]]:
    """Return all definitions that wait, as of one moment. Raise `CliError` if they changed between two pages of the answer.

    Each page has the seal of the whole, so a change shows.
    """
    arguments = {"upstream": name, "tools": list(tools) or None}
    waiting: list[dict[str, Any]] = local.ask("upstreams.diff", arguments)
    if len({each["seal"] for each in waiting}) > 1:
        raise terminal.CliError("what it offers changed while it was read", hint="look again")
    return waiting


def _drawn(waiting: Mapping[str, Any], *, whole: bool, stream_out: bool) -> list[str]:
    """Return the lines that show a waiting definition: a heading, and what changed, or all of it.

    Everything that steers a terminal is shown as what it is.
    """
    from server.agents.mcp.trust.definition_differences import difference, near_changes, shown
    from server.agents.mcp.trust.definitions import MAX_KEPT, is_whole

    stream = sys.stdout if stream_out else sys.stderr
    new = not waiting["old"]
    since = "new" if new else f"changed; accepted {local.ago(waiting['accepted_at'])}"
    drawn = [paint(f"{waiting['kind']} {shown(waiting['name'])}", "bold", stream) + f"  ({since})"]
    lines = difference(waiting["old"], waiting["new"])
    colours = {"-": "red", "+": "green"}
    for line in lines if whole or new else near_changes(lines):
        if line is None:
            drawn.append(paint("  …", "dim", stream))
            continue
        text = f"{line.sign} {shown(line.text)}"
        drawn.append(paint(text, colours[line.sign], stream) if line.sign in colours else text)
    words = None
    if not is_whole(waiting["new"]):
        words = "its end is not shown, so it cannot be accepted and is not offered"
    elif not is_whole(waiting["old"]):
        words = "of what was accepted the end is not compared"
    if words is not None:
        drawn.append(paint(f"  larger than {MAX_KEPT // 1024} KiB: {words}", "yellow", stream))
    return [*drawn, ""]
