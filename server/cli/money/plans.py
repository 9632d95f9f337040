"""The commands `ostiary plans`: who is on which plan. The settings say what a plan is."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final

import click

from server.cli import local, spans, terminal

LONGEST_DAYS: Final = 3_660
HEADINGS: Final = ("id", "name", "plan", "since", "ends in")


@click.group(help="Put people on a plan, list who is on one, and end it.")
def command() -> None: ...


def _show_grant(made: Mapping[str, Any]) -> None:
    terminal.out(f"granted: {terminal.clean(made['plan'])} to {_whose(made)}, {_end(made)}")
    terminal.say_hint(f"ostiary plans end {quote(made['id'])}")


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
@local.shows(_show_grant)
def grant(who: str, plan: str, lasts: int | str | None) -> Any:
    return local.ask("plans.grant", {"who": who, "plan": plan, **spans.until(lasts)})


def _show(found: Sequence[Mapping[str, Any]]) -> None:
    terminal.show_table(HEADINGS, map(_cells, found))


def _cells(grant: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        terminal.paint(terminal.clean(grant["id"]), "bold", sys.stdout),
        _whose(grant),
        terminal.clean(grant["plan"]) + ("" if grant["described"] else " (not in the settings)"),
        local.ago(grant["created_at"]),
        "-" if grant["ends_at"] is None else local.left(grant["ends_at"]),
    )


@command.command("list", help="List who is on a plan.")
@local.shows(_show, nothing="nobody is on a plan", hint="ostiary plans grant NAME PLAN")
def list_plans() -> Any:
    return sorted(local.ask("plans"), key=lambda each: (-each["created_at"], each["id"]))


def _show_end(ended: Mapping[str, Any]) -> None:
    terminal.out(f"ended: {terminal.clean(ended['plan'])} of {_whose(ended)}")


@command.command("end", help="End a plan of somebody, at once, by its id from `ostiary plans list`.")
@click.argument("plan_id", metavar="ID")
@local.shows(_show_end)
def end(plan_id: str) -> Any:
    return local.ask("plans.end", {"id": plan_id})


def _whose(grant: Mapping[str, Any]) -> str:
    return terminal.clean(grant["name"] or grant["wallet"])


def _end(grant: Mapping[str, Any]) -> str:
    return "until it is ended" if grant["ends_at"] is None else f"ends in {local.left(grant['ends_at'])}"
