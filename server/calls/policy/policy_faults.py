"""What is wrong with the settings that stand in front of tools: found when they are read, so that no server starts with a rule that would
never fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from auth.values import scopes
from auth.values.scopes import Vocabulary
from server.agents.base.child_environment import environment_problems
from server.agents.mock.scenario_conditions import BadCondition
from server.calls.policy.patterns import BadPattern, read_pattern
from server.calls.policy.rule_decisions import condition_of
from server.lib.shortened import short_name
from server.settings.rule_settings import HookConfig, RedactConfig, RuleConfig
from server.settings.setting_shapes import ServerConfig

Fault: TypeAlias = tuple[str, str, str]  # the setting, what is wrong, what to write instead

_GLOB: Final = re.compile(r"[A-Za-z0-9_.*?-]+")


def faults(servers: Sequence[ServerConfig], known: Vocabulary) -> list[Fault]:
    return [
        (f"server[{place}].{key}", what, instead)
        for place, server in enumerate(servers, 1)
        for key, what, instead in _of_server(server, known)
    ]


def _of_server(server: ServerConfig, known: Vocabulary) -> list[Fault]:
    found: list[Fault] = []
    seen: set[str] = set()
    for place, rule in enumerate(server.policy, 1):
        found += [(f"policy[{place}].{key}", what, instead) for key, what, instead in _of_rule(rule, known)]
        if rule.name and rule.name in seen:
            found.append((f"policy[{place}].name", f'"{rule.name}" is there twice', "a name of its own"))
        seen.add(rule.name)
    for place, hook in (("before", server.hooks.before), ("after", server.hooks.after)):
        if hook is not None:
            found += [(f"hooks.{place}.{key}", what, instead) for key, what, instead in _of_hook(hook)]
    found += _of_patterns("redact", server.redact)
    for name, tool in server.tools.items():
        found += _of_patterns(f"tools.{name}.redact", tool.redact)
        preview = "" if tool.confirm is None else tool.confirm.preview
        if preview and preview in server.tools and server.tools[preview].confirm is not None:
            found.append(
                (
                    f"tools.{name}.confirm.preview",
                    f"{preview} has to be confirmed itself",
                    "a tool that only shows",
                )
            )
        if preview == name:
            found.append((f"tools.{name}.confirm.preview", "is the tool itself", '"" for its arguments'))
    return found


def _of_patterns(key: str, redact: RedactConfig) -> list[Fault]:
    found: list[Fault] = []
    for place, text in enumerate(redact.patterns, 1):
        try:
            read_pattern(text)
        except BadPattern as error:
            found.append((f"{key}.patterns[{place}]", str(error), ""))
    return found


def _of_hook(hook: HookConfig) -> list[Fault]:
    found = _globs("tools", hook.tools)
    if bool(hook.file) is bool(hook.run):
        what = "and run contradict each other" if hook.file else "is missing"
        found.append(("file", what, 'the path of a Python file, or run = ["./look"]'))
    if hook.file and not hook.function:
        found.append(("function", "is missing", f"the name of a function in {hook.file}"))
    if hook.run and (hook.function or hook.python):
        found.append(("function", "belongs to a Python file", "file instead of run"))
    return found + [(key, what, "") for key, what in environment_problems(hook.environment)]


def _of_rule(rule: RuleConfig, known: Vocabulary) -> list[Fault]:
    found: list[Fault] = []
    if not rule.tools:
        found.append(("tools", "is missing", 'the tools that it speaks of, e.g. ["delete_*"], or ["*"]'))
    found += _globs("tools", rule.tools)
    if rule.decision is None:
        found.append(("decision", "is missing", '"allow", "deny" or "ask"'))
    if rule.decision == "deny" and rule.max_calls:
        found.append(("max_calls", "counts calls that are denied anyway", 'decision = "allow" or "ask"'))
    if rule.per != "day" and not rule.max_calls:
        found.append(("per", "counts nothing without max_calls", "a number there, or leave it out"))
    if rule.decision == "allow" and rule.who.claims_to_be:
        what = "lets in whatever calls itself so, and any program may"
        instead = "who.program with an id, a domain or a name that you entered; or deny or ask by it"
        found.append(("who.claims_to_be", what, instead))
    found += [
        (
            "who.scope",
            f'"{short_name(name)}" is no scope',
            "one of ours (mcp:tools, …), or describe it in [[scope]]",
        )
        for name in scopes.parse(rule.who.scope)
        if name not in known
    ]
    try:
        condition_of(rule)
    except BadCondition as error:
        found.append(("when", str(error), 'e.g. { path = { matches = "^/etc/" } }'))
    except (TypeError, AttributeError):
        found.append(
            ("when", "compares with what an operator does not take", "e.g. { days = { above = 3 } }")
        )
    return found


def _globs(key: str, globs: Sequence[str]) -> list[Fault]:
    return [
        (
            key,
            f'"{short_name(glob)}" is no name of a tool',
            "letters, digits, _ . - and the wildcards * and ?",
        )
        for glob in globs
        if _GLOB.fullmatch(glob) is None
    ]
