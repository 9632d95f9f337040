"""`ostiary policy check`: what the rules of the settings say of a call, without making it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from server.cli import local, terminal
from server.cli.terminal import clean, json_option, out

if TYPE_CHECKING:
    from server.policy.rules import PolicyFacts
    from server.settings.shapes import ServerConfig

KINDS = ("user", "client", "api_key", "local", "anonymous", "payer")


@click.group("policy")
def command() -> None:
    """Try the rules of [[server.policy]] out. Nothing is called, counted or written down."""


@command.command("check")
@click.argument("tool")
@click.option("--arguments", metavar="JSON", default="{}", help="what the tool would be called with")
@click.option("--server", metavar="NAME", default="", help="of this [[server]] (the first)")
@click.option(
    "--as",
    "kind",
    metavar="KIND",
    type=click.Choice(KINDS),
    default="user",
    show_default=True,
    help=f"what kind of caller it is: {terminal.either(KINDS)}",
)
@click.option("--person", metavar="NAME", default="", help="who stands behind it")
@click.option("--program", metavar="NAME", default="", help="the program, or the name of the key")
@click.option("--scope", metavar="SCOPES", default="mcp", help="what the caller has been granted (mcp)")
@local.which_server
@json_option
def check(
    tool: str,
    arguments: str,
    server: str,
    kind: str,
    person: str,
    program: str,
    scope: str,
    data_dir: str | None,
    config: str | None,
    as_json: bool,
) -> int:
    """Say what the rules decide of a call of TOOL. Exit code 1 unless it would be let through unasked."""
    from auth.values import scopes
    from server.policy.rules import PolicyFacts

    found = _server(server, data_dir=data_dir, config=config)
    facts = PolicyFacts(
        tool=tool,
        arguments=_arguments(arguments),
        kind=kind,
        scopes=frozenset(scopes.parse(scope)),
        people=(person,) if person else (),
        program=program,
    )
    told = _told(found, facts)
    if as_json:
        terminal.out_json(told)
    else:
        for name, value in told.items():
            if value not in ("", 0, [], None):
                out(f"{name.replace('_', ' ').ljust(12)} {clean(_said(value))}")
    return 0 if told["verdict"] == "allow" else terminal.EXIT_FAILED


def _told(server: ServerConfig, facts: PolicyFacts) -> dict[str, Any]:
    from server.policy.rules import PolicyRule, decide

    rules = [PolicyRule(rule, place) for place, rule in enumerate(server.policy, 1)]
    decision = decide([rule for rule in rules if rule.speaks_of(facts.tool)], facts)
    return {
        "server": server.name,
        "tool": facts.tool,
        "verdict": decision.verdict,
        "mode": server.policy_mode,
        "rule": decision.rule,
        "reason": decision.reason,
        "max_calls": decision.max_calls,
    }


def _said(value: Any) -> str:
    return ", ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value)


def _server(name: str, *, data_dir: str | None, config: str | None) -> ServerConfig:
    servers = local.settings(data_dir=data_dir, config=config).servers
    found = next((each for each in servers if not name or each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in servers)
        raise terminal.CliError(f"there is no server {name} in the settings", hint=f"--server {known}")
    return found


def _arguments(text: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise terminal.CliError(
            "--arguments is no JSON object", hint="""--arguments '{"path": "notes.txt"}'"""
        ) from None
