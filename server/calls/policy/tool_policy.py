"""The rules and hooks in front of the tools of one server, made of its settings: for each tool those that concern it, and nothing where none does."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Final, Literal

import msgspec

from server.calls.policy.confirmation_questions import FINGERPRINT_CHARACTERS
from server.calls.policy.confirmed_calls import ConfirmedTool, Previews
from server.calls.policy.hooks import Hook, HookRunner
from server.calls.policy.policy_log import PolicyLog
from server.calls.policy.redaction import Redactor
from server.calls.policy.rule_decisions import PolicyRule, names
from server.mcp.messages import Tool
from server.settings.rule_settings import HookConfig, PolicyMode, RedactConfig, program_of, programs_of
from server.settings.setting_shapes import ServerConfig

_NOTHING: Final = RedactConfig()


class ServerPolicy:
    """The policy of one server."""

    def __init__(self, settings: ServerConfig, desk: PolicyLog, runners: Sequence[HookRunner] = ()) -> None:
        """Make it of the settings. `runners` run what these have of hooks, in the order of `programs_of`. Raises `ValueError` for a hook that is
        not there, and `BadCondition` and `BadPattern`, which the settings have been asked about before."""
        self.server: Final = settings.name
        self.mode: Final[PolicyMode] = settings.policy_mode
        self.desk: Final = desk
        self.rules: Final = [PolicyRule(rule, place) for place, rule in enumerate(settings.policy, 1)]
        programs = programs_of(settings.hooks)

        def hook(config: HookConfig | None, place: Literal["before", "after"]) -> Hook | None:
            return (
                None if config is None else Hook(config, runners[programs.index(program_of(config))], place)
            )

        self.before: Final = hook(settings.hooks.before, "before")
        self.after: Final = hook(settings.hooks.after, "after")
        # Of what is no tool's, too: resources, prompts, completions.
        self.redactor: Final = None if settings.redact == _NOTHING else Redactor([settings.redact])
        self.previews: Final = Previews(
            desk.store, settings.name, key=desk.key, clock=desk.clock, entropy=desk.entropy
        )
        self._settings = settings
        # By the tool that shows it: the tool that is shown.
        self._shown_by: dict[str, list[str]] = {}
        for name, tool in settings.tools.items():
            if tool.confirm is not None and tool.confirm.preview:
                self._shown_by.setdefault(tool.confirm.preview, []).append(name)

    @property
    def redacts(self) -> bool:
        """True if anything is hidden of what any tool says."""
        return self.redactor is not None or any(
            tool.redact != _NOTHING for tool in self._settings.tools.values()
        )

    def of(self, tool: Tool) -> ToolPolicy | None:
        """Return what concerns a tool; None: a call of it takes the short way. Raises `BadTerms`."""
        name = tool.name
        settings = self._settings.tools.get(name)
        rules = tuple(rule for rule in self.rules if rule.speaks_of(name))
        confirm = None if settings is None or settings.confirm is None else settings.confirm
        found = ToolPolicy(
            whole=self,
            tool=name,
            rules=rules,
            before=_for(self.before, name),
            after=_for(self.after, name),
            redactor=self._redactor(name),
            confirmed=None if confirm is None else ConfirmedTool(tool, confirm),
            shows=tuple(self._shown_by.get(name, ())),
        )
        return found if found.does_anything else None

    def shown(self, tool: Tool, policy: ToolPolicy) -> Tool:
        """Return the tool as callers see it."""
        return tool if policy.confirmed is None else policy.confirmed.shown(tool)

    def minutes(self, tool: str) -> int:
        """Return how long what is shown of a tool is good."""
        confirm = self._settings.tools[tool].confirm
        assert confirm is not None
        return confirm.minutes

    def budget_of(self, rule: str, caller: str, session: str) -> str:
        """Return the name of a meter. The names of callers may be long."""
        who = hashlib.sha256("\0".join((rule, caller, session)).encode()).hexdigest()[:FINGERPRINT_CHARACTERS]
        return f"policy:{self.server} {who}"

    def unknown(self, tools: Collection[str]) -> list[str]:
        """List what its settings name that is none of these: a word that was misspelt would stand in front of nothing."""
        found = [
            f"{self.server}: {key}.tools names {glob}, which is no tool that an agent offers"
            for key, globs in (
                *((f"policy[{place}]", rule.tools) for place, rule in enumerate(self.rules, 1)),
                *((f"hooks.{hook.place}", hook.tools) for hook in (self.before, self.after) if hook),
            )
            for glob in globs
            if glob != "*" and not any(names((glob,), tool) for tool in tools)
        ]
        return found + [
            f"{self.server}: tools.{shown}.confirm.preview names {shows}, which is no tool that an agent offers"
            for shows, those in self._shown_by.items()
            for shown in those
            if shows not in tools
        ]

    def _redactor(self, tool: str) -> Redactor | None:
        settings = self._settings.tools.get(tool)
        if settings is None or settings.redact == _NOTHING:
            return self.redactor
        return Redactor([self._settings.redact, settings.redact])


class ToolPolicy(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The policy of one tool."""

    whole: ServerPolicy
    tool: str
    rules: tuple[PolicyRule, ...] = ()
    before: Hook | None = None
    after: Hook | None = None
    redactor: Redactor | None = None
    confirmed: ConfirmedTool | None = None
    shows: tuple[str, ...] = ()  # tools whose calls its answer is a preview of

    @property
    def reads_arguments(self) -> bool:
        """True if anything in front of the tool depends on what the arguments are, and so on their types."""
        parts = (self.before, self.after, self.confirmed, self.shows)
        return any(parts) or any(rule.reads_arguments for rule in self.rules)

    @property
    def does_anything(self) -> bool:
        parts = (self.rules, self.shows, self.before, self.after, self.redactor, self.confirmed)
        return any(parts)


def _for(hook: Hook | None, tool: str) -> Hook | None:
    return hook if hook is not None and names(hook.tools, tool) else None
