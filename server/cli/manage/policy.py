"""`ostiary policy check`: what the rules of the settings say of a call, without making it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from server.cli import local, terminal
from server.cli.terminal import clean, json_option, out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from server.calls.policy.rule_decisions import PolicyFacts
    from server.client.check_step import CheckStep
    from server.settings.setting_shapes import ServerConfig

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
@click.option(
    "--program",
    metavar="NAME",
    default="",
    help="the program's id, domain or entered name, or the key's name",
)
@click.option("--claims-to-be", metavar="NAME", default="", help="what the program calls itself")
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
    claims_to_be: str,
    scope: str,
    as_json: bool,
) -> int:
    """Say what the rules decide of a call of TOOL. Exit code 1 unless it would be let through unasked."""
    from auth.values import scopes
    from server.calls.policy.rule_decisions import PolicyFacts

    found = _server(server)
    facts = PolicyFacts(
        tool=tool,
        arguments=_arguments(arguments),
        kind=kind,
        scopes=frozenset(scopes.parse(scope)),
        people=(person,) if person else (),
        programs=(program,) if program else (),
        claims_to_be=claims_to_be,
    )
    told = _told(found, facts)
    if as_json:
        terminal.out_json(told)
    else:
        for name, value in told.items():
            if value not in ("", 0, [], None):
                out(f"{name.replace('_', ' ').ljust(12)} {clean(_said(value))}")
        if told["claimed"]:
            terminal.say_hint(
                f"{clean(_said(told['claimed']))}: `program` is no name that a program gives itself; that is"
                " `claims_to_be`, for deny and ask"
            )
    return 0 if told["verdict"] == "allow" else terminal.EXIT_FAILED


def _told(server: ServerConfig, facts: PolicyFacts) -> dict[str, Any]:
    from server.calls.policy.rule_decisions import PolicyRule, decide

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
        "claimed": [rule.name for rule in rules if rule.speaks_of(facts.tool) and rule.names_claim(facts)],
    }


def claim_steps(
    servers: Sequence[ServerConfig], clients: Sequence[Mapping[str, Any]], keys: Sequence[Mapping[str, Any]]
) -> list[CheckStep]:
    """Name the rules whose `program` is known from nothing but what programs call themselves, which no rule believes."""
    from auth.clients.client_registry import believed_names
    from server.calls.policy.rule_decisions import PolicyRule
    from server.client.check_step import CheckStep

    facts = [_facts_of_program((key["name"], key["id"])) for key in keys]
    for client in clients:
        name = client["name"]
        known = believed_names(client["kind"], client["id"], name, by_device=False, public=False)
        told = _facts_of_program(known, program_id=client["id"], claims_to_be="" if name in known else name)
        facts.append(told)
    found: list[CheckStep] = []
    for server in servers:
        own = [*facts, *(_facts_of_program((token.name,)) for token in server.tokens)]
        for rule in (PolicyRule(each, place) for place, each in enumerate(server.policy, 1)):
            claimed = sorted({each.claims_to_be for each in own if rule.names_claim(each)})
            if claimed and not any(rule.names_program(each) for each in own):
                detail = (
                    f'{server.name}: "{rule.name}" is for no program: there is only one that calls itself'
                    f" {claimed[0]}, and any may"
                )
                hint = (
                    "who.program takes an id, a domain or a name that you entered; who.claims_to_be a claim"
                )
                found.append(CheckStep.failed("rules", detail, hint, goes_on=True))
    return found


def _facts_of_program(
    programs: tuple[str, ...], *, program_id: str = "", claims_to_be: str = ""
) -> PolicyFacts:
    from server.calls.policy.rule_decisions import PolicyFacts

    return PolicyFacts(
        tool="",
        arguments={},
        kind="",
        programs=programs,
        program_id=program_id,
        claims_to_be=claims_to_be,
    )


def _said(value: Any) -> str:
    return ", ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value)


def _server(name: str) -> ServerConfig:
    servers = local.settings().servers
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
