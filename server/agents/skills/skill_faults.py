"""The faults of a `.3md` document as an agent: every one, by the names that validators of the profile use.

An error breaks a MUST, a warning a SHOULD. Spec: agent3md/1 §5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from server.agents.base.first_cycle import first_cycle
from server.agents.skills.agent3md_profile import agent_name, csv, identity_of, inputs_of, is_identity, links
from server.agents.skills.command_lines import binary, placeholders
from server.agents.skills.planes import Bad3md, Plane, PlaneDocument, Position, read_3md

INPUT_TYPES: Final = ("string", "number", "boolean", "object", "array")
_WHOLE: Final = re.compile(r"-?[0-9]{1,15}").fullmatch


class SkillFault(msgspec.Struct, frozen=True, kw_only=True):
    level: Literal["error", "warning"] = "error"
    rule: str
    message: str
    z: Position | None = None

    def __str__(self) -> str:
        where = "" if self.z is None else f" z={self.z}"
        return f"[{self.rule}]{where} {self.message}"


def faults_in(text: str) -> Sequence[SkillFault]:
    """Return the faults, errors first. A document that cannot be read has one."""
    try:
        document = read_3md(text)
    except Bad3md as problem:
        return (SkillFault(rule="parse", message=f"not valid 3md: {problem}"),)
    found = list(_all(document))
    return tuple(sorted(found, key=lambda fault: fault.level))


def _all(document: PlaneDocument) -> Iterator[SkillFault]:
    planes = document.planes
    if not agent_name(document):
        yield SkillFault(rule="frontmatter", message="needs a title: or agent: that names the agent")
    marked = [plane for plane in planes if is_identity(plane)]
    if len(marked) > 1:
        message = f"one plane is the identity, and {len(marked)} say so"
        yield SkillFault(rule="identity", message=message, z=marked[1].z)
    identity = identity_of(planes)
    if identity is None:
        yield SkillFault(
            rule="identity", message="it has no planes, and needs at least the one that is the agent"
        )
    skills = [plane for plane in planes if plane is not identity and not is_identity(plane)]
    yield from _names(skills)
    yield from _links(planes)
    yield from _entry(document)
    declared = csv(document.metadata.get("tools", ""))
    for plane in skills:
        yield from _skill(plane, declared)


def _names(skills: Sequence[Plane]) -> Iterator[SkillFault]:
    seen: dict[str, Position] = {}
    for plane in skills:
        name = (plane.label or "").strip()
        if not name:
            yield SkillFault(rule="missing-label", message="a skill has no label", z=plane.z)
        elif name in seen:
            message = f'the skill "{name}" is there at z={seen[name]} already'
            yield SkillFault(rule="unique-skill", message=message, z=plane.z)
        else:
            seen[name] = plane.z


def _links(planes: Sequence[Plane]) -> Iterator[SkillFault]:
    there = {plane.z for plane in planes}
    edges: dict[Position, Sequence[Position]] = {}
    for plane in planes:
        targets = links(plane.body)
        for z in dict.fromkeys(targets):
            if z not in there:
                message = f"[[z={z}]] links to a plane that does not exist"
                yield SkillFault(rule="dead-link", message=message, z=plane.z)
        edges[plane.z] = [z for z in targets if z in there]
    looped = first_cycle(edges)
    if looped is not None:
        yield SkillFault(rule="cycle", message="depends on itself, by way of its links", z=looped)


def _entry(document: PlaneDocument) -> Iterator[SkillFault]:
    written = document.metadata.get("entry")
    if written is None:
        return
    if not _WHOLE(written.strip()):
        yield SkillFault(rule="entry", message=f'entry is the z of a plane, not "{written[:80]}"')
    elif int(written) not in {plane.z for plane in document.planes}:
        yield SkillFault(rule="entry", message=f'there is no plane at the entry "{written[:80]}"')


def _skill(plane: Plane, declared: Sequence[str]) -> Iterator[SkillFault]:
    attributes = plane.attributes
    name = plane.label or f"skill-{plane.z}"
    if not csv(attributes.get("triggers", "")):
        message = f'the skill "{name}" has no triggers: no request leads to it'
        yield SkillFault(level="warning", rule="triggers", message=message, z=plane.z)
    names: dict[str, None] = {}
    for each in inputs_of(attributes.get("inputs", "")):
        if each.name in names:
            message = f'the skill "{name}" has the input "{each.name}" twice'
            yield SkillFault(rule="dup-input", message=message, z=plane.z)
        names[each.name] = None
        if each.type not in INPUT_TYPES:
            message = f'the input "{each.name}" has the type "{each.type}", which is none of {", ".join(INPUT_TYPES)}'
            yield SkillFault(rule="input-type", message=message, z=plane.z)
    tool = attributes.get("tool")
    if tool is None:
        return
    if not tool.strip():
        message = f'the skill "{name}" has an empty tool'
        yield SkillFault(level="warning", rule="tool", message=message, z=plane.z)
        return
    used = placeholders(tool)
    for each in used:
        if each not in names:
            message = f'the command of "{name}" has {{{each}}}, which is no input of it'
            yield SkillFault(rule="tool-input", message=message, z=plane.z)
    for each in names:
        if each not in used:
            message = f'the skill "{name}" has the input "{each}", which its command does not use'
            yield SkillFault(level="warning", rule="unused-input", message=message, z=plane.z)
    if declared and binary(tool) not in declared:
        message = f'the skill "{name}" runs "{binary(tool)}", which the agent does not name among its tools'
        yield SkillFault(level="warning", rule="undeclared-tool", message=message, z=plane.z)
