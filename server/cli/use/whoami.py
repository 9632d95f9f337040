"""The command `ostiary whoami [URL]`: what the stored tokens say about you, and whether their server still agrees."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

import click

from server.cli import spans, terminal
from server.cli.terminal import clean, json_option, out, paint

if TYPE_CHECKING:
    from server.client.token_file import StoredLogin

# state → what it means, in the words of the table
STATES = {
    "accepted": "the server accepts this login",
    "ended": "the server no longer accepts this login",
    "unreachable": "the server cannot be reached now",
    "unknown": "not checked",
}
# The same in the list of several logins: word and colour.
IN_SHORT = {
    "accepted": ("good", "green"),
    "ended": ("ended", "red"),
    "unreachable": ("not reached", "yellow"),
    "unknown": ("not asked", "dim"),
}
LIST_SECONDS = 10.0
ASKED_AT_ONCE = 16

# How many entries of a list that a server sends are read.
MOST_LINES = 20
# What an ostiary tells everybody about themselves; other servers have no such resource.
ME = "ostiary://me"


@click.command("whoami")
@click.argument("url", required=False)
@click.option("--offline", is_flag=True, help="do not ask the server")
@json_option
def command(url: str | None, offline: bool, as_json: bool) -> int:
    """Show who you are at URL; without a URL, at every server that you are logged in to.

    The servers are asked, all at the same time, and one that does not answer within seconds is passed over.
    """
    from server.cli.use import target

    if url is None:
        return _list(target.token_file().all(), offline=offline, as_json=as_json)
    address = target.logged_in_address(url)

    async def main() -> dict[str, Any]:
        return await _examine(address.url, offline=offline)

    found = terminal.run_async(main)
    if as_json:
        terminal.out_json(found)
    else:
        _show(found)
    return 0 if found["state"] in ("accepted", "unknown") else terminal.EXIT_FAILED


async def _examine(url: str, *, offline: bool) -> dict[str, Any]:
    """Return the stored login, and what its server thinks of it. Raise `NotLoggedIn` if there is none."""
    from server.cli.use import target
    from server.client.access_token import Access
    from server.client.client_errors import BadAnswer, NotLoggedIn, ScopeNeeded, Unreachable
    from server.client.http_exchange import open_client
    from server.client.opened_clients import client_over_http

    async with open_client() as client:
        access = Access(target.token_file(), url, client=client)
        login = await access.stored()
        if login is None:
            raise await access.not_logged_in()
        state, me = "unknown", None
        if not offline:
            try:
                async with client_over_http(client, url, access) as mcp:
                    state = "accepted"
                    me = await mcp.document(ME)
            except ScopeNeeded:
                state = "accepted"
            except NotLoggedIn:
                state = "ended"
            except (Unreachable, BadAnswer):
                state = "unreachable"
        return {**_describe(await access.stored() or login), "state": state, "account": me}


def _describe(login: StoredLogin) -> dict[str, Any]:
    from server.client.token_claims import read_claims

    claims = read_claims(login.access_token)
    return {
        "url": login.url,
        "issuer": login.issuer,
        "subject": claims.get("sub"),
        "client": claims.get("client_id", login.client_id),
        "scope": claims.get("scope", login.scope),
        "grant": claims.get("sid"),
        "expires_at": login.expires_at,
        "renewable": login.refresh_token is not None,
    }


def _show(found: dict[str, Any]) -> None:
    pairs = [("server", found["url"])]
    if found["issuer"] != found["url"].rpartition("/")[0]:
        pairs.append(("issuer", found["issuer"]))
    told = ("subject", "client", "scope", "grant")
    pairs.extend((name, clean(str(found[name]))) for name in told if found[name])
    pairs.extend(_account(found["account"] or {}))
    pairs.append(("token", _life(found)))
    good = found["state"] in ("accepted", "unknown")
    pairs.append(("state", paint(STATES[found["state"]], "green" if good else "red", sys.stdout)))
    terminal.facts(pairs)
    if found["state"] == "ended":
        terminal.say_hint(f"ostiary login {quote(found['url'])}")


# how a login came about → what people call that
HOW = {
    "device": "by a code",
    "code": "in a browser",
    "client_credentials": "as a program",
    "assertion": "by the word of an identity provider",
    "payment": "by paying",
}


def _account(me: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the server says of the person, and of what they have there, as rows to be shown.

    The server may leave out any of it.
    """
    user, credential = _mapping(me.get("user")), _mapping(me.get("credential"))
    quota, plan = _mapping(me.get("quota")), me.get("plan")
    pairs: list[tuple[str, str]] = []
    if user.get("name"):
        owner = user.get("role") == "owner" and user["name"] != "owner"
        pairs.append(("you are", f"{user['name']}, the owner" if owner else str(user["name"])))
    if credential.get("kind") == "login" and str(credential.get("how")) in HOW:
        pairs.append(("logged in", HOW[str(credential["how"])]))
    elif credential.get("kind"):
        pairs.append(("let in by", f"{credential['kind']} {credential.get('name') or ''}".strip()))
    if isinstance(called_at := me.get("called_at"), int):
        from server.cli import local

        pairs.append(("last call", local.lately(called_at)))
    if me.get("tools"):
        pairs.append(("tools", str(me["tools"])))
    if isinstance(plan, str) and plan:
        pairs.append(("plan", plan))
    pairs += [(f"quota {name}", _told(value)) for name, value in quota.items()]
    pairs += _money(me)
    return [(clean(name), clean(value)) for name, value in pairs]


def _money(me: Mapping[str, Any]) -> list[tuple[str, str]]:
    wallet = _mapping(me.get("wallet"))
    if not wallet.get("words"):
        return []
    from server.lib.money.amounts import shown

    held = wallet.get("held")
    of_it = f", of which {shown(held)} is held for calls" if isinstance(held, int) and held else ""
    pairs = [("balance", f"{wallet['words']}{of_it}")]
    caps = [_mapping(cap) for cap in _list_of(me.get("caps"))]
    named = [
        f"{cap['words']}{' with this login' if cap.get('of') == 'login' else ''}"
        for cap in caps
        if cap.get("words")
    ]
    if named:
        pairs.append(("may spend", f"up to {', '.join(named)}"))
    moved = [_mapping(each) for each in _list_of(me.get("movements"))]
    if moved:
        last = moved[0]
        where = f" by {last.get('server')}/{last['tool']}" if last.get("tool") else ""
        pairs.append(("moved last", f"{last.get('words', '')} ({last.get('kind', '')}{where})"))
    return pairs


def _list_of(value: Any) -> list[Any]:
    return cast("list[Any]", value)[:MOST_LINES] if isinstance(value, list) else []


def _told(value: Any) -> str:
    """Return a quota in words: a number, or how much of a limit is used."""
    amount = _mapping(value)
    used, limit = amount.get("used"), amount.get("limit")
    return str(value) if limit is None else f"{used or 0} of {limit}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _life(found: dict[str, Any]) -> str:
    from server.client.token_file import wall_clock

    if found["expires_at"] is None:
        return "no end known"
    left = (found["expires_at"] - wall_clock()) / 1000
    when = spans.told(found["expires_at"], "%Y-%m-%d %H:%M")
    said = (
        f"ends in {terminal.duration(left)} ({when})" if left > 0 else f"ended {terminal.duration(-left)} ago"
    )
    return f"{said}, renewed by itself" if found["renewable"] else said


def _list(logins: list[StoredLogin], *, offline: bool, as_json: bool) -> int:
    from server.cli.spinner import Spinner

    if not logins and not as_json:
        raise terminal.CliError("not logged in anywhere", hint="ostiary login URL")

    async def main() -> list[dict[str, Any]]:
        return await _examine_all([login.url for login in logins], offline=offline)

    spinner = Spinner(terminal.StatusLine(), f"asking {len(logins)} server{'' if len(logins) == 1 else 's'}")
    found = terminal.run_async(lambda: spinner.during(main)) if logins else []
    if as_json:
        terminal.out_json({"logins": found})
        return 0
    rows = [
        (each["url"], _name(each), paint(*IN_SHORT[each["state"]], sys.stdout), clean(str(each["scope"])))
        for each in found
    ]
    for line in terminal.table(("logged in at", "you are", "state", "scope"), rows):
        out(terminal.cut(line, terminal.width(sys.stdout)))
    ended = [each["url"] for each in found if each["state"] == "ended"]
    if ended:
        terminal.say_hint(f"ostiary login {quote(ended[0])}")
    return 0


async def _examine_all(urls: Sequence[str], *, offline: bool) -> list[dict[str, Any]]:
    """Examine many logins at once, and return what was found, in the order of `urls`.

    Raise what reading the token file raises.
    """
    import trio

    from server.cli.use import target
    from server.client.client_errors import ClientError, TokenFileError

    found: dict[str, dict[str, Any]] = {}
    at_once = trio.CapacityLimiter(ASKED_AT_ONCE)

    async def look(url: str) -> None:
        async with at_once:
            try:
                with trio.move_on_after(LIST_SECONDS):
                    found[url] = await _examine(url, offline=offline)
            except TokenFileError:
                raise
            except ClientError:
                return  # which is told below

    async with trio.open_nursery() as nursery:
        for url in urls:
            nursery.start_soon(look, url)
    logins = {login.url: login for login in await trio.to_thread.run_sync(target.token_file().all)}
    unheard = {"state": "unreachable", "account": None}
    return [
        found.get(url) or {**_describe(logins[url]), **unheard}
        for url in urls
        if url in found or url in logins  # somebody may log out meanwhile
    ]


def _name(found: Mapping[str, Any]) -> str:
    """Return the name of the person; else that of the login at the server; else ""."""
    me = _mapping(found["account"])
    named = _mapping(me.get("user")).get("name") or _mapping(me.get("credential")).get("name")
    return clean(str(named)) if named else ""
