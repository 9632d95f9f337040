"""The commands `ostiary certificate`: the certificate that the server of this machine serves: how it stands, a new one now, and an end to one whose key
may have been taken.
"""

from __future__ import annotations

import time
from typing import Any, Final

import click

from server.cli import local, spans, terminal

REASONS: Final = ("unspecified", "key-compromise", "superseded", "cessation")
# An authority takes some seconds for each name; what takes longer goes on without somebody who waits.
WAIT_SECONDS: Final = 180.0
LOOK_SECONDS: Final = 1.0


@click.group(help="See, renew and revoke the certificate that is served.")
def command() -> None: ...


@command.command("status")
@local.which_server
@terminal.json_option
def status(as_json: bool) -> int:
    """Show the certificate that is served, when it is renewed, and what is wrong. Ends with 1 where https does not answer for want of one."""
    found = local.ask("certificate")
    if as_json:
        terminal.out_json(found)
    elif found is None:
        terminal.out("no certificate: this server does not end TLS itself")
    else:
        terminal.facts([(name, terminal.clean(value)) for name, value in facts(found)])
        if hint := hint_of(found):
            terminal.say_hint(terminal.clean(hint))
    return 0 if found is None or found["serving"] is not None else terminal.EXIT_FAILED


@command.command("renew")
@click.option("--no-wait", is_flag=True, help="do not wait for the outcome")
@local.which_server
@terminal.json_option
def renew(no_wait: bool, as_json: bool) -> int:
    """Get a new certificate with a new key now, ahead of its time, or without waiting for the next attempt."""
    begun = local.ask("certificate.renew")
    return _outcome(begun["attempt"], no_wait, as_json)


@command.command("revoke")
@click.option(
    "--reason",
    metavar="WHY",
    type=click.Choice(REASONS),
    default="unspecified",
    help=f"what everybody is told of it: {terminal.either(REASONS)}; key-compromise where somebody may have the key",
)
@click.option("--at-once", is_flag=True, help="do not get another first: https may fail meanwhile")
@click.option("--no-wait", is_flag=True, help="do not wait for the outcome")
@terminal.yes_option
@local.which_server
@terminal.json_option
def revoke(reason: str, at_once: bool, no_wait: bool, yes: bool, as_json: bool) -> int:
    """Get a new certificate with a new key, serve it, and revoke the one of before.

    If no new one can be had, nothing is revoked yet: it is tried again until it is done. With --at-once the old one is revoked first.
    """
    terminal.say("this gets a new certificate with a new key, and revokes the one that is served now")
    if at_once:
        terminal.say(
            "  it is revoked first: until the new one is here, clients that check may refuse this server"
        )
    terminal.agree_or_end("do it", yes=yes, otherwise="nothing was changed")
    begun = local.ask("certificate.revoke", {"reason": reason, "at_once": at_once})
    return _outcome(begun["attempt"], no_wait, as_json)


def _outcome(attempt: int, no_wait: bool, as_json: bool) -> int:
    deadline = time.monotonic() + (0.0 if no_wait else WAIT_SECONDS)
    while True:
        found = local.ask("certificate")
        over = found["attempts"] >= attempt
        if over or time.monotonic() >= deadline:
            break
        time.sleep(LOOK_SECONDS)
    done = over and found["trouble"] is None and not found["revoking"]
    if as_json:
        terminal.out_json({"done": done, "certificate": found})
    elif not over:
        terminal.out("begun")
        terminal.say_hint("ostiary certificate status")
    elif done:
        terminal.facts([(name, terminal.clean(value)) for name, value in facts(found)])
    else:
        words = found["trouble"]["words"] if found["trouble"] else "it could not be revoked yet"
        raise terminal.CliError(terminal.clean(words), hint=terminal.clean(hint_of(found)) or None)
    return 0 if done or no_wait else terminal.EXIT_FAILED


def facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Say for people what the server says of it."""
    serving, pairs = found["serving"], list[tuple[str, str]]()
    pairs.append(("certificate", certificate_line(found)))
    if serving is not None:
        pairs.append(("names", ", ".join(serving["names"])))
        pairs.append(("from", str(serving["issuer"])))
        pairs.append(("fingerprint", str(serving["fingerprint"])))
    if found["kind"] == "files":
        pairs.append(("kept", "in two files, read again when they change"))
        if found["problem"]:
            pairs.append(("not read", f"{found['problem']}; what was served before still is"))
        return pairs
    pairs.append(("authority", str(found["authority"])))
    if found["renews_at"] is not None:
        pairs.append(("renewed", f"by itself, {_when(found['renews_at'])}"))
    if found["revoking"]:
        pairs.append(("to be revoked", str(found["revoking"])))
    if found["ahead_seconds"]:
        pairs.append(("clock", clock_line(found["ahead_seconds"])))
    if (trouble := found["trouble"]) is not None:
        again = (
            "being tried now" if found["doing"] == "getting" else f"tried again {_when(trouble['again_at'])}"
        )
        pairs.append(("trouble", f"{trouble['words']} (for {_age(trouble['since'])}; {again})"))
    return pairs


def certificate_line(found: dict[str, Any]) -> str:
    """Say in one line whether there is one, and for how long."""
    serving = found["serving"]
    if serving is None:
        doing = " (being got now)" if found.get("doing") == "getting" else ""
        return (
            f"none yet for {', '.join(found['names'])}{doing}"
            if found["kind"] == "acme"
            else found["problem"]
        )
    left = serving["not_after"] / 1000 - time.time()
    if left <= 0:
        return f"over for {terminal.duration(-left)}"
    return f"good for {terminal.duration(left)}, until {_when(serving['not_after'])}"


def clock_line(ahead_seconds: int) -> str:
    which = "behind" if ahead_seconds > 0 else "ahead of"
    return f"this machine's is {terminal.duration(abs(ahead_seconds))} {which} the authority's: set it right"


def hint_of(found: dict[str, Any]) -> str:
    trouble = found.get("trouble")
    return "" if trouble is None else str(trouble["hint"])


def _when(millis: int) -> str:
    return spans.told(millis, "%d %b %Y %H:%M")


def _age(millis: int) -> str:
    return terminal.duration(max(0.0, time.time() - millis / 1000))
