"""From a path to a book of skills: a `.3md` document, or a folder of `SKILL.md` files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from server.agents.skills.agent3md_profile import book_of
from server.agents.skills.planes import Bad3md, read_3md
from server.agents.skills.skill_faults import SkillFault, faults_in
from server.agents.skills.skills_book import SkillBook
from server.agents.skills.skills_folder import NoSkills, book_in

DOCUMENT_BYTES: Final = 5 * 1024 * 1024
SUFFIX: Final = ".3md"


class CannotOpenSkills(ValueError):
    """Says which path, and why."""


class OpenedSkills(msgspec.Struct, frozen=True, kw_only=True):
    book: SkillBook
    faults: Sequence[SkillFault]
    path: Path


def open_skills(path: Path) -> OpenedSkills:
    """What is wrong with the skills and does not keep them from being read is told as faults. Raises `CannotOpenSkills`."""
    path = path.expanduser().absolute()
    if path.is_dir():
        try:
            book, faults = book_in(path)
        except NoSkills as problem:
            raise CannotOpenSkills(str(problem)) from problem
        return OpenedSkills(book=book, faults=faults, path=path)
    text = document_text(path)
    try:
        book = book_of(read_3md(text))
    except Bad3md as problem:
        raise CannotOpenSkills(f"{path} is not a .3md document: {problem}") from problem
    return OpenedSkills(book=book, faults=faults_in(text), path=path)


def document_text(path: Path) -> str:
    """Raises `CannotOpenSkills`."""
    if path.suffix.lower() != SUFFIX:
        raise CannotOpenSkills(f"{path} is neither a {SUFFIX} document nor a folder")
    try:
        with path.open("rb") as file:
            data = file.read(DOCUMENT_BYTES + 1)
    except OSError as error:
        raise CannotOpenSkills(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > DOCUMENT_BYTES:
        raise CannotOpenSkills(f"{path} is larger than {DOCUMENT_BYTES // 1024 // 1024} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CannotOpenSkills(f"{path} is not text in UTF-8") from error


def new_document(name: str) -> tuple[str, str]:
    """A name for a file, and a document for an agent of that name that has no faults."""
    short = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "agent"
    label = name.replace("\\", "\\\\").replace('"', '\\"')
    return f"{short}{SUFFIX}", _NEW.format(short=short, label=label, name=name)


_NEW: Final = """\
---
3md: 1.0
axis: skill
agent: {short}
persona: says what it is going to do, then does one thing at a time
tools: grep, git
---
What this agent is for, in a sentence or two. People read this; programs read the planes below.

@plane z=0 label="{label}" kind=identity
# {name}

The rules of the agent. Pick the skill whose triggers fit what is asked, read that skill alone, and do what it says.

@plane z=1 label="find" kind=skill triggers="find, search, where" inputs="text:string, folder:string" tool="grep -rn -e {{text}} -- {{folder}}"
# find

Look for a text in the files of a folder. For what changed lately, see [[z=2|changes]].

@plane z=2 label="changes" kind=skill triggers="changes, history, recent commits" inputs="count:number" tool="git log --oneline -n {{count}}"
# changes

Show the latest commits.

@plane z=3 label="review" kind=skill triggers="review, look over"
# review

A skill without a command: say what to look at, in which order, and how to report it.
"""
