"""How much a tool can do: read, write, or move money; which scopes a call of it needs for that, and whether it is offered at all.

The settings' word counts, then the author's (`_meta` "io.ostiary/tier"), then the annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, cast, get_args

import msgspec
from msgspec import UNSET

from auth.values import scopes
from server.mcp.messages import Tool
from server.mcp.terms import BadTerms, CallTerms, Tier
from server.settings.money_settings import seconds_of
from server.settings.policy_settings import ToolConfig

TIER: Final = "io.ostiary/tier"

SCOPES: Final[Mapping[Tier, str]] = MappingProxyType(
    {"read": scopes.READ.name, "write": scopes.WRITE.name, "financial": scopes.FINANCIAL.name}
)
_PLAIN: Final = ToolConfig()


class ServerRules(msgspec.Struct, frozen=True, kw_only=True):
    """Of one server."""

    tools: Mapping[str, ToolConfig] = {}
    expose: frozenset[str] = frozenset()  # the only tools that are offered; empty: all
    financial: bool = False  # the owner has said that this server's tools may move money
    unclassified: Literal["write", "financial"] = "write"  # a tool of which nobody said anything

    def terms(self, tool: Tool, base: CallTerms) -> CallTerms | None:
        """None: it is not offered, to anybody, on any wire. Raises `BadTerms`."""
        own = self.tools.get(tool.name, _PLAIN)
        tier = own.tier or self._tier(tool)
        if self.expose and tool.name not in self.expose:
            return None
        if not own.enabled or (tier == "financial" and not self.financial):
            return None
        needed = base.scopes | {SCOPES[tier], *([own.scope] if own.scope else [])}
        return msgspec.structs.replace(
            base,
            tier=tier,
            scopes=needed,
            dedupe_seconds=seconds_of(own.dedupe),
            idempotent=_idempotent(tool) if own.idempotent is None else own.idempotent,
        )

    def _tier(self, tool: Tool) -> Tier:
        named = None if tool.meta is UNSET else tool.meta.get(TIER)
        if named is not None:
            if named not in get_args(Tier):
                raise BadTerms(f"the tool {tool.name}: {TIER} is read, write or financial")
            return cast("Tier", named)
        hints = tool.annotations
        if hints is UNSET or (hints.read_only_hint is UNSET and hints.destructive_hint is UNSET):
            return self.unclassified
        return "read" if hints.read_only_hint is True else "write"


def _idempotent(tool: Tool) -> bool:
    """As its annotations have it. What only reads can be read again."""
    hints = tool.annotations
    return hints is not UNSET and (hints.idempotent_hint is True or hints.read_only_hint is True)
