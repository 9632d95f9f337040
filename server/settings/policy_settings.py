"""The settings that say who may do what at a server: static tokens, tools, groups of them, scopes. Their shapes, and what is
wrong with them together; that a single value is right is settings_reader.py's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from auth.values import scopes
from auth.values.scopes import Scope, Vocabulary
from server.lib.rates.rates import QUOTA, QUOTA_WORDS, RATE, RATE_WORDS
from server.lib.shortened import short_name
from server.mcp.terms import Tier
from server.settings.money_settings import ToolMoney
from server.settings.rule_settings import ConfirmConfig, RedactConfig
from server.settings.tool_selection import GROUP, WORDS, BadSelection, parse

Accepted = Literal["login", "api-key", "basic"]

# A token of the settings is chosen by a person: this many characters, so that it cannot be tried out.
LEAST_TOKEN: Final = 24

_SCOPE_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,39}(?::[a-z0-9_.-]{1,40}){0,3}")
_OURS: Final = frozenset({"mcp", "financial", scopes.OFFLINE_ACCESS, "openid"})


class TokenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token for one machine, kept by its owner instead of by us."""

    name: Annotated[
        str,
        Meta(
            pattern="^[a-z0-9][a-z0-9_-]{0,39}$", description="lower-case letters, digits, dashes, at most 40"
        ),
    ]
    # Without a pattern: what is wrong is shown, and somebody may have written the token itself.
    token: Annotated[str, Meta(description='a reference, "env:NAME" or "file:/path"')]
    scope: Annotated[str, Meta(max_length=1024, description="scopes, separated by spaces")] = "mcp"
    tools: Annotated[str, Meta(max_length=2048, description='a selection of tools, e.g. "readonly"')] = ""


class ToolConfig(ToolMoney, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The owner's word on one tool."""

    tier: Annotated[Tier | None, Meta(description='"read", "write" or "financial"')] = None
    scope: Annotated[str, Meta(max_length=200, description="a scope that a call of it needs besides")] = ""
    enabled: bool = True
    # answers in its place, out of this document
    mock: Annotated[str, Meta(max_length=4096, description='the path of a mock, e.g. "weather.json"')] = ""
    limit: Annotated[str, Meta(pattern=RATE, description=RATE_WORDS)] = ""  # of each caller
    limit_all: Annotated[str, Meta(pattern=RATE, description=RATE_WORDS)] = ""  # of all callers together
    quota: Annotated[str, Meta(pattern=QUOTA, description=QUOTA_WORDS)] = ""
    # making the same call twice comes to the same; None: as its author says
    idempotent: bool | None = None
    redact: Annotated[RedactConfig, Meta(description='a table, e.g. { sets = ["emails"] }')] = RedactConfig()
    confirm: Annotated[ConfirmConfig | None, Meta(description='a table, e.g. { preview = "quote" }')] = None
    # what it is called with by `ostiary check`, and shown with where people try it out
    example: Annotated[
        dict[str, Any] | None,
        Meta(description='a table of arguments, e.g. { city = "Berlin" }'),
    ] = None
    example_safe: bool = False


class ScopeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[scope]]`: a word of the installation's own."""

    name: Annotated[str, Meta(max_length=200, description='a name, e.g. "billing:read"')]
    description: Annotated[
        str, Meta(min_length=1, max_length=200, description="what it allows, for the person who is asked")
    ]
    financial: bool = False


class SelectionSettings(Protocol):
    """The part of a `ServerConfig` that selects tools."""

    @property
    def name(self) -> str: ...
    @property
    def auth(self) -> Literal["oauth", "none"] | None: ...
    @property
    def tokens(self) -> Sequence[TokenConfig]: ...
    @property
    def tools(self) -> Mapping[str, ToolConfig]: ...
    @property
    def groups(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def default_tools(self) -> str: ...
    @property
    def financial(self) -> bool: ...
    @property
    def anonymous_tools(self) -> Sequence[str]: ...


Fault = tuple[str, str, str]  # the setting, what is wrong, what to write instead


def vocabulary(written: Sequence[ScopeConfig], servers: Iterable[SelectionSettings]) -> Vocabulary:
    """Return the scopes of the installation. `financial` is published where a server lets its tools move money."""
    more = [Scope(name=one.name, words=one.description, financial=one.financial) for one in written]
    if any(server.financial for server in servers):
        more.append(
            Scope(name=scopes.FINANCIAL.name, words=scopes.FINANCIAL.words, financial=True, listed=True)
        )
    return Vocabulary(more)


def faults(written: Sequence[ScopeConfig], servers: Sequence[SelectionSettings]) -> list[Fault]:
    found = _scope_faults(written)
    known = vocabulary(written, servers)
    for place, server in enumerate(servers, 1):
        found += [(f"server[{place}].{key}", what, instead) for key, what, instead in _faults(server, known)]
    return found


def _scope_faults(written: Sequence[ScopeConfig]) -> list[Fault]:
    found: list[Fault] = []
    seen: set[str] = set()
    for place, one in enumerate(written, 1):
        key = f"scope[{place}].name"
        if _SCOPE_NAME.fullmatch(one.name) is None:
            found.append(
                (
                    key,
                    f'"{short_name(one.name)}" is no scope',
                    'lower-case words and colons, e.g. "billing:read"',
                )
            )
        elif one.name.partition(":")[0] in _OURS:
            found.append((key, f'"{one.name}" has a meaning already', "a word of your own before the colon"))
        elif one.name in seen:
            found.append((key, f'"{one.name}" is there twice', "each scope once"))
        seen.add(one.name)
        # Who holds the wider one has the narrower, and would never be asked about money.
        wider = [each.name for each in written if not each.financial and one.name.startswith(each.name + ":")]
        if one.financial and wider:
            found.append(
                (
                    f"scope[{place}].financial",
                    f"but {wider[0]}, which covers it, is not",
                    "both, or another name",
                )
            )
    return found


def _faults(server: SelectionSettings, known: Vocabulary) -> list[Fault]:
    found: list[Fault] = []
    for name, tool in server.tools.items():
        if tool.scope and tool.scope not in known:
            found.append(_no_scope(f"tools.{name}.scope", tool.scope))
    seen: set[str] = set()
    for place, token in enumerate(server.tokens, 1):
        if token.name in seen:
            found.append(
                (f"tokens[{place}].name", f'"{token.name}" is there twice', "a name of its own for each")
            )
        seen.add(token.name)
        if not token.token.startswith(("env:", "file:")):
            found.append((f"tokens[{place}].token", "is no reference", '"env:NAME" or "file:/path"'))
        named = scopes.parse(token.scope)
        found += [_no_scope(f"tokens[{place}].scope", name) for name in named if name not in known]
        if not named:
            found.append((f"tokens[{place}].scope", "names nothing", 'e.g. "mcp:tools"'))
        found += _selection_faults(f"tokens[{place}].tools", token.tools)
    for name in server.groups:
        if re.fullmatch(GROUP, name) is None or name in WORDS:
            found.append(
                (f"groups.{short_name(name)}", "is no name of a group", "a lower-case word of your own")
            )
    found += _selection_faults("default_tools", server.default_tools)
    if server.auth == "none" and server.anonymous_tools:
        found.append(("anonymous_tools", 'say nothing where auth = "none"', "one of the two"))
    if server.auth == "none" and server.tokens:
        found.append(("tokens", 'are for nobody where auth = "none"', "one of the two"))
    return found


def _no_scope(key: str, name: str) -> Fault:
    return key, f'"{short_name(name)}" is no scope', "one of ours (mcp:tools, …), or describe it in [[scope]]"


def _selection_faults(key: str, text: str) -> list[Fault]:
    try:
        parse(text)
    except BadSelection as problem:
        return [(key, f"is no selection: {problem}", 'e.g. "readonly,search"')]
    return []
