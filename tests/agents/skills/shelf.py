"""An agent that is a document, and a folder of skills, as tests want them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

AGENT = """\
---
3md: 1.0
axis: skill
agent: kitchen
model: any-large
persona: cooks slowly
tools: oven, git
---
A cook in one file.

@plane z=0 label="kitchen" kind=identity
# kitchen

Wash your hands.

@plane z=1 label="bake" kind=skill triggers="bake, bread, warm up" inputs="degrees:number, tray, note:string?" tool="oven --heat {degrees} {tray}" cost=heat
# bake

Bake it. First [[z=3]], then look at [[z=2|cooling]] and [[z=3|kneading]] again.

@plane z=2 label="cool" kind=skill triggers="cool, let it rest"
Let it rest.

@plane z=3 label="knead" kind=skill triggers="knead, bread"
Knead. See [[z=2]].
"""


def written(folder: Path, text: str = AGENT, name: str = "agent.3md") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def skill_folder(root: Path, **skills: str) -> Path:
    """Each with its text; underscores of the name are dashes."""
    for name, text in skills.items():
        folder = root / name.replace("_", "-")
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(dedent(text), "utf-8")
    return root
