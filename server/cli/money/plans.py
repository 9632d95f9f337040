"""`ostiary plans`: who is on which plan. The settings say what a plan is."""

from __future__ import annotations

import sys
from shlex import quote
from typing import Any, Final

import click

from server.cli import local, spans, terminal

LONGEST_DAYS: Final = 3_660


@click.group(help="Put people on a plan, list who is on one, and end it.")
def command() -> None: ...


@command.command("grant", help="Put WHO, a person's name or a wallet like client:ID, on the PLAN.")
@click.argument("who")
@click.argument("plan")
@click.option(
    "--expires",
    "lasts",
    metavar="TIME",
    type=spans.TimeSpan(days=LONGEST_DAYS),
    help="when it ends: after 30d, on 2027-01-31, or never; otherwise as the plan says",
)
@local.which_server
@terminal.json_option
def grant(who: str, plan: str, lasts: int | str | None, as_json: bool) -> None:
    arguments: dict[str, Any] = {
        "who": who,
        "plan": plan,
        "never": lasts == spans.NEVER,
        "lasts_ms": None if lasts == spans.NEVER else lasts,
    }
    made = local.ask("plans.grant", arguments)
    if as_json:
        terminal.out_json(made)
        return
    terminal.out(f"granted: {terminal.clean(made['plan'])} to {_whose(made)}, {_end(made)}")
    terminal.say_hint(f"ostiary plans end {quote(made['id'])}")


@command.command("list", help="List who is on a plan.")
@local.which_server
@terminal.json_option
def list_plans(as_json: bool) -> None:
    found = local.ask("plans")
    found = local.in_order(found, lambda each: (-each["created_at"], each["id"]))
    if as_json:
        terminal.out_json(found)
        return
    if not found:
        terminal.say("nobody is on a plan")
        terminal.say_hint("ostiary plans grant NAME PLAN")
        return
    rows = [
        (
            terminal.paint(terminal.clean(each["id"]), "bold", sys.stdout),
            _whose(each),
            terminal.clean(each["plan"]) + ("" if each["described"] else " (not in the settings)"),
            local.ago(each["created_at"]),
            "-" if each["ends_at"] is None else local.left(each["ends_at"]),
        )
        for each in found
    ]
    for line in terminal.table(("id", "name", "plan", "since", "ends in"), rows):
        terminal.out(line)


@command.command("end", help="End a plan of somebody, at once, by its id from `ostiary plans list`.")
@click.argument("plan_id", metavar="ID")
@local.which_server
@terminal.json_option
def end(plan_id: str, as_json: bool) -> None:
    ended = local.ask("plans.end", {"id": plan_id})
    if as_json:
        terminal.out_json(ended)
    else:
        terminal.out(f"ended: {terminal.clean(ended['plan'])} of {_whose(ended)}")


def _whose(grant: dict[str, Any]) -> str:
    return terminal.clean(grant["name"] or grant["wallet"])


def _end(grant: dict[str, Any]) -> str:
    return "until it is ended" if grant["ends_at"] is None else f"ends in {local.left(grant['ends_at'])}"
