"""Faults in the settings that stand in front of tools: found when they are read, so that no server starts with a rule that would never
fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from auth.values import scopes
from auth.values.scopes import Vocabulary
from server.agents.base.child_environment import environment_problems
from server.agents.mock.scenario_conditions import BadCondition
from server.calls.policy.patterns import BadPattern, read_pattern
from server.calls.policy.rule_decisions import condition_of
from server.lib.shortened import short_name
from server.settings.program_rights import rights_problems
from server.settings.rule_settings import HookConfig, RedactConfig, RuleConfig
from server.settings.setting_shapes import ServerConfig

Fault: TypeAlias = tuple[str, str, str]  # the setting, what is wrong, what to write instead

_GLOB: Final = re.compile(r"[A-Za-z0-9_.*?-]+")


def faults(servers: Sequence[ServerConfig], known: Vocabulary) -> list[Fault]:
    return [
        fault
        for place, server in enumerate(servers, 1)
        for fault in _below(f"server[{place}]", _of_server(server, known))
    ]


def _of_server(server: ServerConfig, known: Vocabulary) -> Iterator[Fault]:
    seen: set[str] = set()
    for place, rule in enumerate(server.policy, 1):
        yield from _below(f"policy[{place}]", _of_rule(rule, known))
        if rule.name and rule.name in seen:
            yield f"policy[{place}].name", f'"{rule.name}" is there twice', "a name of its own"
        seen.add(rule.name)
    for place, hook in (("before", server.hooks.before), ("after", server.hooks.after)):
        if hook is not None:
            yield from _below(f"hooks.{place}", _of_hook(hook))
    yield from _of_patterns("redact", server.redact)
    for name, tool in server.tools.items():
        yield from _of_patterns(f"tools.{name}.redact", tool.redact)
        key = f"tools.{name}.confirm.preview"
        preview = "" if tool.confirm is None else tool.confirm.preview
        if preview and preview in server.tools and server.tools[preview].confirm is not None:
            yield key, f"{preview} has to be confirmed itself", "a tool that only shows"
        if preview == name:
            yield key, "is the tool itself", '"" for its arguments'


def _below(key: str, found: Iterable[Fault]) -> Iterator[Fault]:
    return ((f"{key}.{below}", what, instead) for below, what, instead in found)


def _of_patterns(key: str, redact: RedactConfig) -> Iterator[Fault]:
    for place, text in enumerate(redact.patterns, 1):
        try:
            read_pattern(text)
        except BadPattern as error:
            yield f"{key}.patterns[{place}]", str(error), ""


def _of_hook(hook: HookConfig) -> Iterator[Fault]:
    yield from _globs(hook.tools)
    if bool(hook.file) is bool(hook.run):
        what = "and run contradict each other" if hook.file else "is missing"
        yield "file", what, 'the path of a Python file, or run = ["./look"]'
    if hook.file and not hook.function:
        yield "function", "is missing", f"the name of a function in {hook.file}"
    if hook.run and (hook.function or hook.python):
        yield "function", "belongs to a Python file", "file instead of run"
    for key, what in (*environment_problems(hook.environment), *rights_problems(hook)):
        yield key, what, ""


def _of_rule(rule: RuleConfig, known: Vocabulary) -> Iterator[Fault]:
    if not rule.tools:
        yield "tools", "is missing", 'the tools that it speaks of, e.g. ["delete_*"], or ["*"]'
    yield from _globs(rule.tools)
    if rule.decision is None:
        yield "decision", "is missing", '"allow", "deny" or "ask"'
    if rule.decision == "deny" and rule.max_calls:
        yield "max_calls", "counts calls that are denied anyway", 'decision = "allow" or "ask"'
    if rule.per != "day" and not rule.max_calls:
        yield "per", "counts nothing without max_calls", "a number there, or leave it out"
    if rule.decision == "allow" and rule.who.claims_to_be:
        what = "lets in whatever calls itself so, and any program may"
        instead = "who.program with an id, a domain or a name that you entered; or deny or ask by it"
        yield "who.claims_to_be", what, instead
    for name in scopes.parse(rule.who.scope):
        if name not in known:
            instead = "one of ours (mcp:tools, …), or describe it in [[scope]]"
            yield "who.scope", f'"{short_name(name)}" is no scope', instead
    try:
        condition_of(rule)
    except BadCondition as error:
        yield "when", str(error), 'e.g. { path = { matches = "^/etc/" } }'
    except (TypeError, AttributeError):
        yield "when", "compares with what an operator does not take", "e.g. { days = { above = 3 } }"


def _globs(globs: Sequence[str]) -> Iterator[Fault]:
    for glob in globs:
        if _GLOB.fullmatch(glob) is None:
            instead = "letters, digits, _ . - and the wildcards * and ?"
            yield "tools", f'"{short_name(glob)}" is no name of a tool', instead
