"""The agents and hooks for which programs are started, and the user that all of these run as who say nothing of it themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from server.settings.program_rights import ProgramRights
from server.settings.rule_settings import HookConfig, programs_of
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import kind_of

_Rights = TypeVar("_Rights", bound=ProgramRights)


def started_programs(server: ServerConfig) -> Iterator[ProgramRights]:
    """Yield the agents and hooks of a server for which programs are started."""
    for agent in filter(is_program, server.agents):
        assert isinstance(agent, ProgramRights)
        yield agent
    yield from programs_of(server.hooks)


def is_program(agent: msgspec.Struct) -> bool:
    kind = kind_of(agent)
    return (
        kind in ("command", "agent")
        or (kind == "python" and not getattr(agent, "in_process", False))
        or (kind == "mcp" and bool(getattr(agent, "command", ())))
    )


def run_all_as(servers: Sequence[ServerConfig], user: str) -> tuple[ServerConfig, ...]:
    """Return the servers with `user` where a program of theirs says of none as whom it runs."""

    def agent_of(agent: msgspec.Struct) -> msgspec.Struct:
        return _as(agent, user) if isinstance(agent, ProgramRights) and is_program(agent) else agent

    def hook_of(hook: HookConfig | None) -> HookConfig | None:
        return None if hook is None else _as(hook, user)

    return tuple(
        msgspec.structs.replace(
            server,
            agents=tuple(map(agent_of, server.agents)),
            hooks=msgspec.structs.replace(
                server.hooks, before=hook_of(server.hooks.before), after=hook_of(server.hooks.after)
            ),
        )
        for server in servers
    )


def _as(program: _Rights, user: str) -> _Rights:
    return program if program.run_as else msgspec.structs.replace(program, run_as=user)
