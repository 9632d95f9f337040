"""Settings of what stands in front of tools that cannot be meant: refused when they are read, each with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.settings.resolved_settings import Resolved, resolve
from server.settings.setting_changes import change
from server.settings.settings_reader import ConfigInvalid, load


def read(tmp_path: Path, text: str) -> Resolved:
    file = tmp_path / "ostiary.toml"
    file.write_text(text, "utf-8")
    return resolve(load(file, {}))


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        read(tmp_path, text)
    return [str(problem) for problem in caught.value.problems]


def server(tables: str) -> str:
    return f'[[server]]\nname = "main"\n{tables}\n[[server.agent]]\nkind = "demo"\n'


def rule(*lines: str) -> str:
    return server("\n".join(("[[server.policy]]", *lines)))


DENY = ('tools = ["*"]', 'decision = "deny"')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (rule('decision = "deny"'), "server[1].policy[1].tools: is missing"),
        (rule('tools = ["a b"]', 'decision = "deny"'), 'server[1].policy[1].tools: "a b" is no name of a tool'),
        (rule('tools = ["*"]'), 'server[1].policy[1].decision: is missing; write "allow", "deny" or "ask"'),
        (rule('tools = ["*"]', 'decision = "maybe"'), 'server[1].policy[1].decision: cannot be "maybe"'),
        (rule(*DENY, 'tool = "x"'), "server[1].policy[1].tool: is not a setting; write tools"),
        (rule(*DENY, "max_calls = 3"), "server[1].policy[1].max_calls: counts calls that are denied anyway"),
        (rule('tools = ["*"]', 'decision = "ask"', 'per = "session"'), "server[1].policy[1].per: counts nothing"),
        (rule(*DENY, 'who = { scope = "pages:read" }'), 'server[1].policy[1].who.scope: "pages:read" is no scope'),
        (
            rule('tools = ["*"]', 'decision = "allow"', 'who = { claims_to_be = ["Claude*"] }'),
            "server[1].policy[1].who.claims_to_be: lets in whatever calls itself so",
        ),
        (rule(*DENY, 'who = { kind = ["robot"] }'), "server[1].policy[1].who.kind: cannot be a list"),
        (rule(*DENY, 'when = { a = { matches = "(" } }'), "server[1].policy[1].when: `when` cannot be asked"),
        (rule(*DENY, 'when = { a = { matches = "(?=x)" } }'), "server[1].policy[1].when: `when` cannot be asked"),
        (rule(*DENY, 'when = { a = { above = "x" } }'), "server[1].policy[1].when: `when` cannot be asked"),
        (rule(*DENY, 'when = { a = { contains = "x", above = [] } }'), "server[1].policy[1].when"),
        (rule(*DENY, 'when = { "a..b" = 1 }'), "server[1].policy[1].when: `when` names the argument"),
        (rule(*DENY, 'when = { "$schema" = { "$ref" = "https://a.example/x" } }'), "server[1].policy[1].when"),
        (server('[server.hooks]\nbefore = {}'), "server[1].hooks.before.file: is missing"),
        (
            server('[server.hooks]\nbefore = { file = "a.py", run = ["b"], function = "c" }'),
            "server[1].hooks.before.file: and run contradict each other",
        ),
        (server('[server.hooks]\nafter = { file = "a.py" }'), "server[1].hooks.after.function: is missing"),
        (server('[server.hooks]\nafter = { run = ["a"], function = "b" }'), "server[1].hooks.after.function"),
        (server('[server.hooks]\nbetween = { run = ["a"] }'), "server[1].hooks.between: is not a setting"),
        (server('redact = { sets = ["names"] }'), "server[1].redact.sets: cannot be a list"),
        (server('redact = { patterns = ["a+"] }'), "server[1].redact.patterns[1]: has a repetition without"),
        (
            server('tools = { echo = { redact = { patterns = ["ok", "("] } } }'),
            "server[1].tools.echo.redact.patterns[2]: is no regular expression",
        ),
        (server('tools = { echo = { confirm = { preview = "echo" } } }'), "is the tool itself"),
        (
            server('tools = { echo = { confirm = { preview = "clock" } }, clock = { confirm = {} } }'),
            "server[1].tools.echo.confirm.preview: clock has to be confirmed itself",
        ),
        (server('tools = { echo = { confirm = { minutes = 0 } } }'), "server[1].tools.echo.confirm.minutes"),
        (server('policy_mode = "off"'), 'server[1].policy_mode: cannot be "off"; write "enforce", "audit"'),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    found = problems(tmp_path, text)
    assert any(problem in each for each in found), found


def test_two_rules_of_one_name_are_told_apart_by_nobody(tmp_path: Path) -> None:
    named = '[[server.policy]]\nname = "x"\ntools = ["*"]\ndecision = "deny"\n'
    assert 'server[1].policy[2].name: "x" is there twice' in problems(tmp_path, server(named * 2))[0]


@pytest.mark.parametrize(
    "tables",
    [
        '[[server.policy]]\ntools = ["*"]\ndecision = "deny"\nwho = { scope = "mcp:tools" }',
        'policy_mode = "audit"',
        '[server.hooks]\nbefore = { run = ["true"] }',
        'redact = { sets = ["emails"] }',
        "tools = { echo = { confirm = {} } }",
    ],
)
def test_all_of_it_is_taken_while_the_server_runs(tmp_path: Path, tables: str) -> None:
    started = read(tmp_path, server(""))
    found = change({each.name: each for each in started.servers}, started, read(tmp_path, server(tables)))
    assert [each.name for each in found.servers] == ["main"] and not found.waits
