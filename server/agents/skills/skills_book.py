"""An agent as a document: its identity, and skills that are found by what is asked, read alone, or with what they depend on.

Values and functions of values. What the document says in which form is for whoever made the book of it (agent3md_profile.py, skills_folder.py);
which faults it has, skill_faults.py's. Spec: agent3md/1 §3 (skills) and §4 (what a loader does).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from server.agents.skills.command_lines import filled
from server.agents.skills.planes import Position
from server.mcp.skills_extension import ListedSkill

EXPORT_SCHEMA: Final = "agent3md/1"
# What is asked is a request in words; the rest of a longer one decides nothing.
ROUTED_CHARACTERS: Final = 100_000

_WORDS: Final = re.compile(r"[^\W_]+")


class SkillInput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str = "string"
    required: bool = True


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """`needs` are the positions that its body links to, as they are written."""

    name: str
    z: Position
    triggers: Sequence[str] = ()
    inputs: Sequence[SkillInput] = ()
    tool: str | None = None  # a template of a command line
    cost: str | None = None
    needs: Sequence[Position] = ()
    description: str = ""
    body: str

    def entry(self) -> dict[str, Any]:
        """What a catalogue says of it: no body."""
        return {
            "name": self.name,
            "z": self.z,
            "triggers": self.triggers,
            "cost": self.cost,
            "tool": self.tool,
            **({"description": self.description} if self.description else {}),
        }


class RoutedSkill(msgspec.Struct, frozen=True):
    """`matched` are the trigger phrases that the request holds, each once."""

    skill: Skill
    matched: Sequence[str]

    def __str__(self) -> str:
        return f"{self.skill.name}  (score {len(self.matched)}; matched: {', '.join(self.matched)})"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What can be read of a book by an address: a plane, or a file of a skill's folder. Text, or else bytes."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    media_type: str = "text/markdown"
    size: int
    text: str | None = None
    data: bytes | None = None
    digest: str = ""  # of its bytes, where it is a file of an Agent Skill


class SkillBook:
    """`skills` in the order of the document. Of two with one name the later one is found by it (skill_faults.py names both)."""

    def __init__(
        self,
        *,
        name: str,
        skills: Sequence[Skill],
        identity: str = "",
        model: str | None = None,
        tools: Sequence[str] = (),
        persona: str = "",
        pages: Sequence[Page] = (),
        listed: Sequence[ListedSkill] = (),
    ) -> None:
        self.name: Final = name
        self.identity: Final = identity
        self.model: Final = model
        self.tools: Final = tuple(tools)
        self.persona: Final = persona
        self.pages: Final = tuple(pages)
        self.listed: Final = tuple(listed)
        self._by_name: Final = {skill.name: skill for skill in skills}
        self.skills: Final = tuple(self._by_name.values())
        self._by_z: Final = {skill.z: skill for skill in skills}
        self._phrases: Final = [
            (skill, [(phrase, words(phrase)) for phrase in dict.fromkeys(skill.triggers)])
            for skill in self.skills
        ]

    def catalogue(self) -> list[dict[str, Any]]:
        return [skill.entry() for skill in self.skills]

    def route(self, request: str) -> Sequence[RoutedSkill]:
        """Those with a trigger phrase all of whose words are in the request: most phrases first, then the lower position."""
        asked = words(request[:ROUTED_CHARACTERS])
        found: list[RoutedSkill] = []
        for skill, phrases in self._phrases:
            matched = [phrase for phrase, needed in phrases if needed and needed <= asked]
            if matched:
                found.append(RoutedSkill(skill, matched))
        return sorted(found, key=lambda routed: (-len(routed.matched), routed.skill.z))

    def get(self, name: str) -> Skill | None:
        return self._by_name.get(name)

    def resolve(self, name: str) -> Sequence[Skill]:
        """The skill and all that it depends on, each once, as they are linked to, depth first; nothing for an unknown one."""
        found: dict[Position, Skill] = {}
        rest = [skill] if (skill := self.get(name)) else []
        while rest:
            skill = rest.pop()
            if skill.z in found:
                continue
            found[skill.z] = skill
            rest += [self._by_z[z] for z in reversed(skill.needs) if z in self._by_z]
        return tuple(found.values())

    def export(self, *, bodies: bool = False) -> dict[str, Any]:
        """As JSON for whoever reads no Markdown."""
        document: dict[str, Any] = {
            "schema": EXPORT_SCHEMA,
            "agent": {
                "name": self.name,
                "model": self.model or "unknown",
                "tools": self.tools,
                "persona": self.persona,
            },
            "skills": [
                {
                    "name": skill.name,
                    "z": skill.z,
                    "triggers": skill.triggers,
                    "inputs": [each.name for each in skill.inputs],
                    "inputSchema": skill.inputs,
                    "tool": skill.tool,
                    "cost": skill.cost,
                    "deps": skill.needs,
                }
                for skill in self.skills
            ],
        }
        if bodies:
            document["bodies"] = {skill.name: skill.body for skill in self.skills}
        return msgspec.to_builtins(document)


def words(text: str) -> frozenset[str]:
    """Runs of letters and digits of any script, in small letters."""
    return frozenset(_WORDS.findall(text.lower()))


def as_chain(skills: Sequence[Skill]) -> str:
    """Skills with what they depend on, as one text."""
    return "\n\n".join(f"### {skill.name}\n{skill.body}" for skill in skills)


def as_prompt(skill: Skill, values: Mapping[str, str]) -> str:
    """What a model is to do: the instructions, what was given for the inputs, and the command line that comes of it."""
    given = [f"- {each.name}: {values[each.name]}" for each in skill.inputs if values.get(each.name)]
    parts = [skill.body]
    if given:
        parts.append("Inputs:\n\n" + "\n".join(given))
    if skill.tool:
        line = filled(skill.tool, {name: value for name, value in values.items() if value})
        fence = "~~~" if "```" in line else "```"
        parts.append(f"Command:\n\n{fence}\n{line}\n{fence}")
    return "\n\n".join(part for part in parts if part)
