"""Agent Skills as the extension `io.modelcontextprotocol/skills` lists them. Spec: ext-skills "Skills" (SEP-2640)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from server.mcp.method_params import ListParams

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
# What every host takes of one skill; more is served as resources, and not listed.
MOST_SKILL_FILES: Final = 512
MOST_SKILL_BYTES: Final = 16 * 1024 * 1024


class ListedSkillFile(msgspec.Struct, frozen=True, kw_only=True):
    uri: str
    digest: str  # sha256: and 64 hexadecimal digits, of the bytes as they are read
    size: int


class ListedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """`resources` are all of its files, `SKILL.md` among them; `frontmatter` is that of it, as its author wrote it."""

    uri: str
    frontmatter: Mapping[str, Any]
    resources: Sequence[ListedSkillFile]


class SkillListParams(ListParams, frozen=True, kw_only=True, rename="camel"):
    """Not `ListParams` itself: without the extension the method is unknown, and no empty list."""
