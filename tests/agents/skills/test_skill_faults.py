from __future__ import annotations

import pytest
from shelf import AGENT

from server.agents.skills.skill_faults import faults_in
from server.agents.skills.skills_source import new_document

AGENT_PLANE = "@plane z=0 label=me kind=identity\nI am.\n"
SKILL = "@plane z=1 label=one triggers=one\nDo.\n"


def document(planes: str = AGENT_PLANE + SKILL, fields: str = "agent: me\n") -> str:
    return f"---\n3md: 1.0\n{fields}---\n{planes}"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("no frontmatter", ["parse"]),
        (document(fields=""), ["frontmatter"]),
        (document("", fields="title: x\n"), ["identity"]),
        (document(AGENT_PLANE + "@plane z=7 kind=identity\n"), ["identity"]),
        (document(AGENT_PLANE + "@plane z=1 triggers=x\n"), ["missing-label"]),
        (document(AGENT_PLANE + SKILL + "@plane z=2 label=one triggers=x\n"), ["unique-skill"]),
        (document(AGENT_PLANE + SKILL + "[[z=42|there]]\n"), ["dead-link"]),
        (document(fields="agent: me\nentry: one\n"), ["entry"]),
        (document(fields="agent: me\nentry: 9\n"), ["entry"]),
        (document(AGENT_PLANE + SKILL + "[[z=2]]\n@plane z=2 label=two triggers=x\n[[z=1]]\n"), ["cycle"]),
        (document(AGENT_PLANE + SKILL + "[[z=1]]\n"), ["cycle"]),
        (document(AGENT_PLANE + '@plane z=1 label=a triggers=x inputs="p, p:number"\n'), ["dup-input"]),
        (document(AGENT_PLANE + '@plane z=1 label=a triggers=x inputs="p:date"\n'), ["input-type"]),
        (document(AGENT_PLANE + '@plane z=1 label=a triggers=x tool="ls {dir}"\n'), ["tool-input"]),
    ],
)
def test_each_error_has_its_rule_and_no_other(text: str, rules: list[str]) -> None:
    found = faults_in(text)
    assert [fault.rule for fault in found] == rules
    assert found[0].level == "error"
    assert str(found[0]).startswith(f"[{rules[0]}]")


@pytest.mark.parametrize(
    ("plane", "rule"),
    [
        ("@plane z=1 label=a\n", "triggers"),
        ('@plane z=1 label=a triggers=x tool=""\n', "tool"),
        ('@plane z=1 label=a triggers=x inputs="p" tool="ls"\n', "unused-input"),
        ('@plane z=1 label=a triggers=x tool="rm"\n', "undeclared-tool"),
    ],
)
def test_what_is_unwise_is_a_warning(plane: str, rule: str) -> None:
    (fault,) = faults_in(document(AGENT_PLANE + plane, fields="agent: me\ntools: ls, git\n"))
    assert (fault.level, fault.rule, fault.z) == ("warning", rule, 1)


def test_errors_come_before_warnings() -> None:
    found = faults_in(document(AGENT_PLANE + "@plane z=1 label=a\n[[z=9]]\n"))
    assert [fault.level for fault in found] == ["error", "warning"]


@pytest.mark.parametrize(
    "text", [AGENT.replace("[[z=2]]", ""), document(fields="title: x\nentry: 1\nother: y\n")]
)
def test_a_sound_document_has_no_errors(text: str) -> None:
    assert [fault for fault in faults_in(text) if fault.level == "error"] == []


@pytest.mark.parametrize("name", ["My Agent", 'a "quoted" \\ name', "ü", "x" * 200])
def test_a_new_document_has_no_faults_whatever_the_agent_is_called(name: str) -> None:
    file, text = new_document(name)
    assert file.endswith(".3md")
    assert "/" not in file
    assert faults_in(text) == ()
