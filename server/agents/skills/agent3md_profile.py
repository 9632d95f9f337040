"""The profile `agent3md/1`: which plane of a `.3md` document is the agent, and what the others say as skills.

Lenient, as a loader has to be: unknown keys are passed over, and what is wrong with a document is for skill_faults.py to say.
Spec: agent3md/1 §2 and §3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from server.agents.skills.planes import Plane, PlaneDocument, Position, position
from server.agents.skills.skills_book import Page, Skill, SkillBook, SkillInput

LINK: Final = re.compile(r"\[\[z=([0-9]{1,15})(?:\|[^\]\n]*)?\]\]")


def book_of(document: PlaneDocument) -> SkillBook:
    identity = identity_of(document.planes)
    name = agent_name(document) or "agent"
    metadata = document.metadata
    return SkillBook(
        name=name,
        skills=[_skill(plane) for plane in document.planes if plane is not identity],
        identity="" if identity is None else identity.body,
        model=metadata.get("model"),
        tools=csv(metadata.get("tools", "")),
        persona=metadata.get("persona", ""),
        pages=[_page(name, plane, plane is identity) for plane in document.planes],
    )


def agent_name(document: PlaneDocument) -> str:
    """What it is called: the title, else its short id; empty for neither."""
    return (document.title or document.metadata.get("agent", "")).strip()


def identity_of(planes: Sequence[Plane]) -> Plane | None:
    """The plane that says so, else the lowest; None where there is none at all."""
    lowest = min(planes, key=lambda plane: plane.z, default=None)
    return next((plane for plane in planes if is_identity(plane)), lowest)


def is_identity(plane: Plane) -> bool:
    return plane.attributes.get("kind", "") == "identity"


def skill_name(plane: Plane) -> str:
    return (plane.label or "").strip() or f"skill-{plane.z}"


def links(body: str) -> Sequence[Position]:
    """Positions that a body depends on, as often as it names them."""
    found = (position(digits) for digits in LINK.findall(body))
    return tuple(z for z in found if z is not None)


def inputs_of(written: str) -> Sequence[SkillInput]:
    """`question, limit:number?`; what is not a type of the profile is kept for skill_faults.py to see."""
    found: list[SkillInput] = []
    for item in csv(written):
        name, _, kind = item.removesuffix("?").rstrip().partition(":")
        if name.strip():
            kind = kind.strip().lower() or "string"
            found.append(SkillInput(name=name.strip(), type=kind, required=not item.endswith("?")))
    return tuple(found)


def csv(written: str) -> Sequence[str]:
    return tuple(part.strip() for part in written.split(",") if part.strip())


def _skill(plane: Plane) -> Skill:
    attributes = plane.attributes
    return Skill(
        name=skill_name(plane),
        z=plane.z,
        triggers=csv(attributes.get("triggers", "")),
        inputs=inputs_of(attributes.get("inputs", "")),
        tool=attributes.get("tool", "").strip() or None,
        cost=attributes.get("cost"),
        needs=links(plane.body),
        body=plane.body,
    )


def _page(agent: str, plane: Plane, is_agent: bool) -> Page:
    name = agent if is_agent else skill_name(plane)
    return Page(
        uri=f"plane://{quote(agent, safe='')}/{plane.z}",
        name=name,
        description="The agent itself: its rules" if is_agent else f"The skill {name}",
        size=len(plane.body.encode()),
        text=plane.body,
    )
