"""The command `ostiary doctor [URL]`: what a client would see of a server, step by step. Without a URL: this machine's own server,
with its settings and data directory first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from server.cli import local, terminal
from server.cli.terminal import clean, json_option, out, paint

if TYPE_CHECKING:
    from server.client.server_checkup import CheckStep, LookFurther

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
    from server.cli.doctor.doctor_machine import examine_machine
    from server.cli.use import target
    from server.client.server_checkup import examine

    report = _Report(quiet=as_json)
    local_url = examine_machine(report.add, store=store) if url is None else target.meant(url).url
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
