"""The bounds of an upstream's pages: which hosts they may reach and what of the browser they may use, as their owner here has it.

A server says in `_meta.ui` what its page needs, and hosts build a Content Security Policy of that. Whatever the owner has not named is
cut from what goes on, in lists and in answers, so that no host allows it. Spec: ext-apps, "UI Resource Format" (`csp`, `permissions`,
`domain`); of the older Apps SDK `openai/widgetCSP` and `openai/widgetDomain`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET

from server.mcp.messages import Content, EmbeddedResource, Resource, ResourceContents, ResourceTemplate, Tool
from server.mcp.result_encoding import PromptResult, ToolResult

T = TypeVar("T", Tool, Resource, ResourceTemplate, ResourceContents, Content)

# Nothing else may stand in a policy: a blank or a semicolon would begin another rule of it.
_ORIGIN: Final = re.compile(
    r"(?:(?:https?|wss?)://)?((?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)(?::(?:[0-9]{1,5}|\*))?(?:/[A-Za-z0-9._~/-]*)?"
)
_WHOLE_SCHEMES: Final = frozenset({"https:", "wss:", "data:", "blob:"})
_UI: Final = "ui"
_OLD_POLICY: Final = "openai/widgetCSP"
_OLD_DOMAIN: Final = "openai/widgetDomain"


class PageBounds:
    """The bounds of one upstream's pages."""

    def __init__(self, hosts: Sequence[str], permissions: Sequence[str]) -> None:
        """Keep what its owner has named. `hosts`: names, also with `*.` before them; `*` alone is every host."""
        self._hosts = frozenset(hosts)
        self._permissions = frozenset(permissions)

    def of(self, named: T) -> T:
        """Return a definition or a content within the bounds."""
        if named.meta is UNSET:
            return named
        bounded = self.meta(named.meta, [])
        return named if bounded is named.meta else msgspec.structs.replace(named, meta=bounded or UNSET)

    def result(self, result: ToolResult) -> ToolResult:
        """Return an answer with the pages that are part of it within the bounds."""
        content = [self._block(each) for each in result.content]
        meta = None if result.meta is None else self.meta(result.meta, [])
        return msgspec.structs.replace(result, content=content, meta=meta)

    def prompt(self, result: PromptResult) -> PromptResult:
        """Return a prompt with the pages that are part of it within the bounds."""
        messages = [
            msgspec.structs.replace(each, content=self._block(each.content)) for each in result.messages
        ]
        return msgspec.structs.replace(result, messages=messages)

    def _block(self, block: Content) -> Content:
        if isinstance(block, EmbeddedResource):
            block = msgspec.structs.replace(block, resource=self.of(block.resource))
        return self.of(block)

    def meta(self, meta: Mapping[str, Any], cut: list[str]) -> Mapping[str, Any]:
        """Return `_meta` within the bounds, and add to `cut` whatever is not in it any more."""
        if not meta.keys() & {_UI, _OLD_POLICY, _OLD_DOMAIN}:
            return meta
        found = dict(meta)
        ui = meta.get(_UI)
        if isinstance(ui, Mapping):
            found[_UI] = self._ui(cast("Mapping[str, Any]", ui), cut)
        if _OLD_POLICY in meta:
            found[_OLD_POLICY] = self._policy(meta[_OLD_POLICY], cut)
        if _OLD_DOMAIN in meta and not self._allows(meta[_OLD_DOMAIN], cut):
            del found[_OLD_DOMAIN]
        return found

    def _ui(self, ui: Mapping[str, Any], cut: list[str]) -> Mapping[str, Any]:
        found = dict(ui)
        if "csp" in ui:
            found["csp"] = self._policy(ui["csp"], cut)
        if "permissions" in ui:
            wanted = ui["permissions"]
            asked = cast("Mapping[str, Any]", wanted) if isinstance(wanted, Mapping) else dict[str, Any]()
            found["permissions"] = {name: asked[name] for name in asked if name in self._permissions}
            cut += [name for name in asked if name not in self._permissions]
        if "domain" in ui and not self._allows(ui["domain"], cut):
            del found["domain"]
        return found

    def _policy(self, policy: Any, cut: list[str]) -> Mapping[str, Any]:
        if not isinstance(policy, Mapping):
            return {}
        return {
            rule: [each for each in cast("list[Any]", origins) if self._allows(each, cut)]
            for rule, origins in cast("Mapping[str, Any]", policy).items()
            if isinstance(origins, list)
        }

    def _allows(self, origin: Any, cut: list[str]) -> bool:
        allowed = isinstance(origin, str) and self._names(origin)
        if not allowed:
            cut.append(str(origin))
        return allowed

    def _names(self, origin: str) -> bool:
        found = _ORIGIN.fullmatch(origin.lower())
        if found is None:
            return "*" in self._hosts and origin in _WHOLE_SCHEMES
        host = found[1]
        if "*" in self._hosts or host in self._hosts:
            return True
        labels = host.removeprefix("*.").split(".")
        parents = {
            "*." + ".".join(labels[at:]) for at in range(0 if host.startswith("*.") else 1, len(labels))
        }
        return not parents.isdisjoint(self._hosts)
