"""What stands in front of the tools of a house, made of settings as they are written."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any

import msgspec
import structlog
import trio

from server.calls.policy.hooks import HookCaller, HookRunner
from server.calls.policy.policy_log import PolicyLog
from server.calls.policy.tool_policy import ServerPolicy
from server.settings.setting_shapes import ServerConfig
from server.store.inline_store import InlineStore, open_inline_store

NOON = 1_800_014_400_000
PROCEED = b'{"decision": "proceed"}'
Answers = Callable[[Mapping[str, Any]], Any]


class Governing(msgspec.Struct):
    policy: ServerPolicy
    desk: PolicyLog
    store: InlineStore
    now: list[int]
    lines: list[dict[str, Any]]

    async def trail(self) -> list[tuple[str, str, str]]:
        rows = await self.store.read(
            lambda db: db.fetch_all("SELECT event, outcome, reason FROM audit ORDER BY seq")
        )
        return [(row["event"], row["outcome"], row["reason"]) for row in rows]


@asynccontextmanager
async def governing(
    settings: dict[str, Any], *, audits: bool = True, runners: Sequence[HookRunner] = ()
) -> AsyncGenerator[Governing]:
    now, lines = [NOON], list[dict[str, Any]]()

    def keep(_logger: object, _level: str, event: Any) -> Any:
        lines.append(dict(event))
        raise structlog.DropEvent

    log = structlog.wrap_logger(structlog.PrintLogger(StringIO()), processors=[keep], wrapper_class=None)
    async with open_inline_store(clock=lambda: now[0]) as store:
        store.chain_audit(bytes(32))
        desk = PolicyLog(
            store,
            key=bytes(32),
            clock=lambda: now[0],
            entropy=secrets.token_bytes,
            log=log,
            audits=audits,
        )
        policy = ServerPolicy(msgspec.convert(settings, ServerConfig), desk, runners)
        yield Governing(policy, desk, store, now, lines)


class HookRunnerFake(HookRunner):
    """Stands for a process of the owner's."""

    def __init__(self, answers: Answers = lambda _: PROCEED) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[Any] = []

    async def ask(self, function: str, given: Mapping[str, Any], caller: HookCaller) -> bytes:
        self.asked.append(given)
        said = self.answers(given)
        if isinstance(said, Exception):
            raise said
        if said is None:
            await trio.sleep_forever()
        return said


def hooked(place: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "main", "policy": list(rules), "hooks": {place: {"run": ["look"], **more}}}
