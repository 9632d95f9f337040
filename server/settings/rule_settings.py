"""The settings in front of tools: which calls are let through, refused or asked about, hooks, redaction and confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from server.settings.program_rights import ProgramRights

PolicyMode: TypeAlias = Literal["enforce", "audit", "dry_run"]
Verdict: TypeAlias = Literal["allow", "deny", "ask"]
CallerKind: TypeAlias = Literal["user", "client", "api_key", "local", "anonymous", "payer"]

MOST_RULES: Final = 1000
MOST_GLOBS: Final = 1000
MOST_PATTERNS: Final = 50

TOOLS_WORDS: Final = 'a list of tools, e.g. ["delete_*"]'
_GLOB: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]
_NAME: TypeAlias = Annotated[str, Meta(min_length=1, max_length=320)]


class WhoConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The callers that a rule is about, of whom all of this is so; empty for everybody."""

    kind: Annotated[
        tuple[CallerKind, ...],
        Meta(
            max_length=6,
            description='a list of "user", "client", "api_key", "local", "anonymous", "payer"',
        ),
    ] = ()
    scope: Annotated[str, Meta(max_length=1024, description='scopes that they have, e.g. "mcp:tools"')] = ""
    person: Annotated[
        tuple[_NAME, ...], Meta(max_length=MOST_GLOBS, description='a list of people, e.g. ["alice"]')
    ] = ()
    program: Annotated[
        tuple[_NAME, ...],
        Meta(max_length=MOST_GLOBS, description='a list of programs, e.g. ["claude.ai", "nightly job"]'),
    ] = ()
    claims_to_be: Annotated[
        tuple[_NAME, ...],
        Meta(max_length=MOST_GLOBS, description='a list of names, e.g. ["claude*"]'),
    ] = ()


class RuleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.policy]]`: the first that fits a call decides."""

    name: Annotated[str, Meta(max_length=80, description="a few words by which you know it")] = ""
    tools: Annotated[tuple[_GLOB, ...], Meta(max_length=MOST_GLOBS, description=TOOLS_WORDS)] = ()
    when: Annotated[
        dict[str, Any] | list[dict[str, Any]],
        Meta(description="conditions on the arguments, e.g. { days = { above = 3 } }"),
    ] = {}
    who: Annotated[WhoConfig, Meta(description='a table, e.g. { kind = ["api_key"] }')] = WhoConfig()
    decision: Annotated[Verdict | None, Meta(description='"allow", "deny" or "ask"')] = None
    reason: Annotated[str, Meta(max_length=500, description="a sentence that a model can act on")] = ""
    max_calls: Annotated[
        int, Meta(ge=0, le=1_000_000_000, description="a number; 0: as many as they like")
    ] = 0
    per: Literal["day", "session"] = "day"


class HookConfig(ProgramRights, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`before` and `after` of `[server.hooks]`."""

    file: Annotated[str, Meta(max_length=4096, description='the path of a Python file, e.g. "hooks.py"')] = ""
    function: Annotated[str, Meta(max_length=128, description="the name of a function in it")] = ""
    python: Annotated[str, Meta(max_length=4096, description="the path of a Python interpreter")] = ""
    run: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...],
        Meta(max_length=200, description='a list of words, e.g. ["./look", "--strict"]'),
    ] = ()
    tools: Annotated[
        tuple[_GLOB, ...], Meta(min_length=1, max_length=MOST_GLOBS, description=TOOLS_WORDS)
    ] = ("*",)
    environment: Annotated[
        tuple[str, ...] | Mapping[str, str],
        Meta(description='names of variables to pass on, or a table, e.g. { API_KEY = "env:AGENT_KEY" }'),
    ] = ()
    deadline_seconds: Annotated[float, Meta(gt=0, le=86_400, description="seconds up to 86400")] = 5.0

    def __repr__(self) -> str:  # the environment may hold a value that should have been a reference
        return f"{type(self).__name__}(file={self.file!r}, run={self.run[:1]!r})"


class HooksConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.hooks]`."""

    before: Annotated[
        HookConfig | None, Meta(description='a table, e.g. { file = "hooks.py", function = "before" }')
    ] = None
    after: Annotated[
        HookConfig | None, Meta(description='a table, e.g. { file = "hooks.py", function = "after" }')
    ] = None


class RedactConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`redact` of a `[[server]]`, and of `[server.tools.NAME]`."""

    sets: Annotated[
        tuple[Literal["emails", "cards", "secrets"], ...],
        Meta(max_length=3, description='a list of "emails", "cards", "secrets"'),
    ] = ()
    patterns: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...],
        Meta(max_length=MOST_PATTERNS, description="a list of regular expressions"),
    ] = ()


class ConfirmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`confirm` of `[server.tools.NAME]`: what a call shows first, and who may confirm it."""

    preview: Annotated[
        str, Meta(max_length=128, description='the name of a tool that shows it, or "" for the arguments')
    ] = ""
    keys: bool = True
    minutes: Annotated[int, Meta(ge=1, le=60, description="minutes from 1 to 60")] = 10


class HookProgram(ProgramRights, frozen=True, kw_only=True):
    """A program that runs hooks, once for all that name the same."""

    file: str = ""
    python: str = ""
    run: tuple[str, ...] = ()
    environment: tuple[str, ...] | Mapping[str, str] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(file={self.file!r}, run={self.run[:1]!r})"


def program_of(hook: HookConfig) -> HookProgram:
    found = {name: getattr(hook, name) for name in HookProgram.__struct_fields__}
    return HookProgram(**found)


def programs_of(hooks: HooksConfig) -> tuple[HookProgram, ...]:
    found: list[HookProgram] = []
    for hook in (hooks.before, hooks.after):
        if hook is not None and (program := program_of(hook)) not in found:
            found.append(program)
    return tuple(found)
