"""Agent Skills over the wire: those whose `SKILL.md` this caller may know of. Their files are read as any resource is.

Spec: ext-skills "Skills" (SEP-2640).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, cast

from server.calls.request import Request
from server.calls.resource_methods import LONGEST_ADDRESS
from server.calls.rights.standing import Standing
from server.mcp.errors import BadParams
from server.mcp.method_params import UriParams
from server.mcp.result_encoding import CACHE_SCOPE, LIST_TTL_MS, RawResult
from server.mcp.skills_extension import ListedSkill, SkillListParams

_ADDRESS: Final = attrgetter("uri")


async def list_skills(request: Request) -> RawResult:
    """Raises `BadCursor`."""
    endpoint, cursor = request.endpoint, cast("SkillListParams", request.route.params).cursor
    page, after = endpoint.cursors.cut("skills", _visible(request), _ADDRESS, cursor, endpoint.page_size)
    return _fresh(request, {"skills": page} | ({} if after is None else {"nextCursor": after}))


async def get_skill(request: Request) -> RawResult:
    """Raises `BadParams` for what is none, or none that the caller may know of."""
    uri = cast("UriParams", request.route.params).uri
    found = next((skill for skill in _visible(request) if skill.uri == uri), None)
    if found is None:
        raise BadParams(f"no skill is served at {uri[:LONGEST_ADDRESS]}")
    return _fresh(request, {"skill": found})


def _visible(request: Request) -> Sequence[ListedSkill]:
    catalog, rights = request.endpoint.catalog, request.endpoint.rights
    return [
        skill
        for skill in catalog.skills()
        if (entry := catalog.resource(skill.uri)) is not None
        and rights.standing(request.principal, entry) is not Standing.HIDDEN
    ]


def _fresh(request: Request, fields: dict[str, Any]) -> RawResult:
    if request.revision.modern:
        fields |= {"ttlMs": LIST_TTL_MS, "cacheScope": CACHE_SCOPE}
    return RawResult(fields)
