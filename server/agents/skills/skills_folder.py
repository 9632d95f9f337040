"""A folder of Agent Skills: each a folder with a `SKILL.md`, whose frontmatter says what it is called and when it is of use.

A skill is found by its triggers, where its `metadata` has any, and else by the words of its name and description. It depends on
those whose `SKILL.md` its text links to. Its other files can be read, and nothing of it is run. Links that lead out of the folder
are not followed. Format: the Agent Skills specification; addresses: `skill://NAME/SKILL.md` (SEP-2640).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from mimetypes import MimeTypes
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from server.agents.skills.agent3md_profile import csv
from server.agents.skills.skill_faults import SkillFault
from server.agents.skills.skills_book import Page, Skill, SkillBook
from server.lib.yaml.flow_style import BadYaml
from server.lib.yaml.yaml_reader import read_yaml
from server.mcp.skills_extension import MOST_SKILL_BYTES, MOST_SKILL_FILES, ListedSkill, ListedSkillFile

FILE_NAME: Final = "SKILL.md"
# All of it is kept in memory, so that what is listed can be read. Skills are texts: more than this is something else.
FOLDER_BYTES: Final = 32 * 1024 * 1024
FILE_BYTES: Final = 5 * 1024 * 1024
MAX_FILES: Final = 5_000
MAX_SKILLS: Final = 1_000
MAX_DEPTH: Final = 8
NAME_CHARACTERS: Final = 64
DESCRIPTION_CHARACTERS: Final = 1024
# Shorter words lead everywhere.
TELLING_CHARACTERS: Final = 4

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch
_LINK: Final = re.compile(r"\]\(\.\./([A-Za-z0-9._-]{1,64})/SKILL\.md(?:#[^)\s]*)?\)")
_TELLING: Final = re.compile(r"[^\W_]+")


class NoSkills(ValueError):
    """A folder that cannot be used; says why."""


class _Found(msgspec.Struct, frozen=True):
    folder: Path
    text: str
    fields: Mapping[str, Any]
    body: str


def book_in(root: Path) -> tuple[SkillBook, Sequence[SkillFault]]:
    """The book, and what is wrong with its skills; those without a name or description are left out. Raises `NoSkills`."""
    files = sorted(_files(root))
    faults: list[SkillFault] = []
    found: dict[str, _Found] = {}
    misnamed: set[str] = set()  # that the extension of the protocol cannot list
    for path in files:
        if path.name != FILE_NAME:
            continue
        where = path.relative_to(root).as_posix()
        try:
            skill = _read(path)
            name = _checked_name(skill, root)
        except ValueError as problem:
            faults.append(SkillFault(rule="parse", message=f"{where}: {problem}"))
            continue
        if name in found:
            faults.append(SkillFault(rule="unique-skill", message=f'{where}: there is a "{name}" already'))
            continue
        if (
            not _NAME(name)
            or len(name) > NAME_CHARACTERS
            or (path.parent != root and path.parent.name != name)
        ):
            message = f"{where}: its name is that of its folder: small letters, digits and dashes, at most {NAME_CHARACTERS}"
            faults.append(SkillFault(level="warning", rule="name", message=message))
            misnamed.add(name)
        found[name] = skill
    if not found:
        raise NoSkills(f"there is no {FILE_NAME} that can be used in {root}")
    if len(found) > MAX_SKILLS:
        raise NoSkills(f"there are more than {MAX_SKILLS} skills in {root}")
    places = {name: z for z, name in enumerate(found, 1)}
    skills: list[Skill] = []
    for name, each in found.items():
        linked = list(dict.fromkeys(_LINK.findall(each.body)))
        for target in linked:
            if target not in places:
                message = f'"{name}" links to ../{target}/{FILE_NAME}, which is not there'
                faults.append(SkillFault(rule="dead-link", message=message, z=places[name]))
        skills.append(_skill(name, each, places, linked))
    pages = list(_pages(root, files, found))
    listed: list[ListedSkill] = []
    for name in found.keys() - misnamed:
        entry = _listed(name, found[name], pages)
        if (why := _unlisted(name, entry)) is None:
            listed.append(entry)
        else:
            message = f'"{name}" is not listed to clients that look for skills: {why}'
            faults.append(SkillFault(level="warning", rule="listing", message=message, z=places[name]))
    listed.sort(key=lambda skill: skill.uri)
    book = SkillBook(name=root.resolve().name or "skills", skills=skills, pages=pages, listed=listed)
    return book, faults


def _listed(name: str, found: _Found, pages: Sequence[Page]) -> ListedSkill:
    """As its extension of the protocol has it. A skill inside another one's folder is served beside that, and is no part of it."""
    place = f"skill://{name}/"
    files = [
        ListedSkillFile(uri=page.uri, digest=page.digest, size=page.size)
        for page in pages
        if page.uri.startswith(place)
    ]
    return ListedSkill(uri=place + FILE_NAME, frontmatter=found.fields, resources=files)


def _unlisted(name: str, entry: ListedSkill) -> str | None:
    """Why no host need take it: one such entry, and strict ones refuse the whole list. Format: agentskills.io/specification."""
    fields = entry.frontmatter
    if (
        len(entry.resources) > MOST_SKILL_FILES
        or sum(each.size for each in entry.resources) > MOST_SKILL_BYTES
    ):
        return f"it has more than {MOST_SKILL_FILES} files, or {MOST_SKILL_BYTES // 1024 // 1024} MiB"
    if fields["name"] != name or len(fields["description"]) > DESCRIPTION_CHARACTERS:
        return "its name has spaces around it, or its description has too many"
    for key, most in (("license", None), ("allowed-tools", None), ("compatibility", 500)):
        value = fields.get(key, "-")
        if not isinstance(value, str) or (most is not None and not 1 <= len(value) <= most):
            return f"{key} is no text" + ("" if most is None else f" of 1 to {most} characters")
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, Mapping) or not all(
        isinstance(value, str) for value in cast("Mapping[str, Any]", metadata).values()
    ):
        return "metadata holds something besides texts"
    return None


def _files(root: Path) -> Iterator[Path]:
    """Every file that is really in there, without hidden ones."""
    real = root.resolve()
    count = 0
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        depth = len(here.relative_to(root).parts)
        folders[:] = sorted(each for each in folders if not each.startswith(".")) if depth < MAX_DEPTH else []
        for name in names:
            path = here / name
            if name.startswith(".") or not path.is_file() or not path.resolve().is_relative_to(real):
                continue
            count += 1
            if count > MAX_FILES:
                raise NoSkills(f"there are more than {MAX_FILES} files in {root}")
            yield path


def _read(path: Path) -> _Found:
    text = _bytes(path).decode("utf-8-sig").replace("\r\n", "\n")  # UnicodeDecodeError is a ValueError
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise ValueError("does not begin with a line of ---")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise ValueError("its frontmatter is not closed by a line of ---")
    try:
        fields = read_yaml("\n".join(lines[1:end]), most=10_000)
    except BadYaml as problem:
        raise ValueError(f"its frontmatter, {problem}") from problem
    if not isinstance(fields, Mapping):
        raise ValueError("its frontmatter has no names with values")
    return _Found(path.parent, text, cast("Mapping[str, Any]", fields), "\n".join(lines[end + 1 :]).strip())


def _checked_name(skill: _Found, root: Path) -> str:
    name, description = skill.fields.get("name"), skill.fields.get("description")
    if not isinstance(name, str) or not name.strip():
        raise ValueError("needs a name")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= DESCRIPTION_CHARACTERS:
        raise ValueError(f"needs a description of at most {DESCRIPTION_CHARACTERS} characters")
    if not skill.folder.resolve().is_relative_to(root.resolve()):
        raise ValueError("is not in the folder")
    return name.strip()


def _skill(name: str, found: _Found, places: Mapping[str, int], linked: Sequence[str]) -> Skill:
    description = str(found.fields["description"]).strip()
    metadata = found.fields.get("metadata")
    own = cast("Mapping[str, Any]", metadata).get("triggers") if isinstance(metadata, Mapping) else None
    return Skill(
        name=name,
        z=places[name],
        triggers=csv(own) if isinstance(own, str) else _telling(f"{name} {description}"),
        needs=[places[target] for target in linked if target in places],
        description=description,
        body=found.body,
    )


def _telling(text: str) -> Sequence[str]:
    found = (word for word in _TELLING.findall(text.lower()) if len(word) >= TELLING_CHARACTERS)
    return tuple(dict.fromkeys(found))


def _pages(root: Path, files: Sequence[Path], found: Mapping[str, _Found]) -> Iterator[Page]:
    """Every file below a skill belongs to the nearest one above it."""
    owners = {skill.folder: name for name, skill in found.items()}
    total = 0
    for path in files:
        owner = next((folder for folder in path.parents if folder in owners), None)
        if owner is None or not owner.is_relative_to(root):
            continue
        name, inside = owners[owner], PurePosixPath(path.relative_to(owner).as_posix())
        data = _bytes(path)
        total += len(data)
        if total > FOLDER_BYTES:
            raise NoSkills(f"the files in {root} are more than {FOLDER_BYTES // 1024 // 1024} MiB")
        is_skill = path == owner / FILE_NAME
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        yield Page(
            uri=f"skill://{quote(name, safe='')}/{quote(str(inside))}",
            name=name if is_skill else f"{name}/{inside}",
            description=str(found[name].fields["description"]).strip() if is_skill else "",
            media_type="text/markdown"
            if path.suffix == ".md"
            else _media_type(path, is_text=text is not None),
            size=len(data),
            text=text,
            data=data if text is None else None,
            digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
        )


def _media_type(path: Path, *, is_text: bool) -> str:
    # By the name alone, and by Python's own table: a machine's would make it differ from one to the next.
    guessed = MimeTypes().guess_type(path.name)[0]
    return guessed or ("text/plain" if is_text else "application/octet-stream")


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise NoSkills(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES:
        raise NoSkills(f"{path} is larger than {FILE_BYTES // 1024 // 1024} MiB")
    return data
