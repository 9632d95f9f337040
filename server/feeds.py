"""An open `subscriptions/listen`: what it asked for, what of that is honoured, and the notifications it is told.

Spec: basic/patterns/subscriptions (2026-07-28), and `taskIds` of the tasks extension.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio
from msgspec import UNSET

from server.mcp.errors import TooManySubscriptions
from server.mcp.params import ListenFilter
from server.subscriptions import (
    MAX_TOPIC_CHARACTERS,
    MAX_TOPICS,
    Subscription,
    Topic,
    resource_topic,
    task_topic,
)

# Below the idle limits of the proxies that people use (most: 60 s).
KEEP_ALIVE_SECONDS: Final = 25.0

TellTask: TypeAlias = Callable[[str], Awaitable[Mapping[str, Any] | None]]


class Wanted(msgspec.Struct, frozen=True):
    """What a subscription listens for, and how the client is told of that."""

    topics: frozenset[Topic]
    honoured: Mapping[str, Any]


def check_bounds(asked: ListenFilter) -> None:
    """Before any of it is looked up, since that is what costs. Raises `TooManySubscriptions`."""
    names = [
        name
        for listed in (asked.resource_subscriptions, asked.task_ids)
        if listed is not UNSET
        for name in listed
    ]
    if len(names) > MAX_TOPICS:
        raise TooManySubscriptions(f"a subscription names at most {MAX_TOPICS} resources and tasks")
    if sum(map(len, names)) > MAX_TOPIC_CHARACTERS:
        raise TooManySubscriptions(
            f"a subscription names resources and tasks in at most {MAX_TOPIC_CHARACTERS} characters"
        )


def wanted(
    asked: ListenFilter,
    *,
    library: bool,
    resources: bool,
    readable: Callable[[str], bool],
    task_ids: list[str] | None,
) -> Wanted:
    """`library`: whether there are prompts; `resources`: whether those. `task_ids`: those asked for that are the caller's, None where tasks
    are not offered."""
    topics: set[Topic] = set()
    honoured: dict[str, Any] = {}
    for topic, name, is_wanted in (
        ("tools", "toolsListChanged", asked.tools_list_changed),
        ("prompts", "promptsListChanged", asked.prompts_list_changed and library),
        ("resources", "resourcesListChanged", asked.resources_list_changed and resources),
    ):
        if is_wanted:
            topics.add(topic)
            honoured[name] = True
    if asked.resource_subscriptions is not UNSET and resources:
        uris = [uri for uri in dict.fromkeys(asked.resource_subscriptions) if readable(uri)]
        topics.update(resource_topic(uri) for uri in uris)
        honoured["resourceSubscriptions"] = uris
    if task_ids is not None:
        topics.update(task_topic(task_id) for task_id in task_ids)
        honoured["taskIds"] = task_ids
    return Wanted(frozenset(topics), honoured)


class OpenFeed:
    """A subscription with its signs of life, at each of which it is asked whether its caller may still be here: a token
    that has run out, or a login that was ended, ends it, since no further request would."""

    __slots__ = ("_due_at", "_ping", "_still_allowed", "_subscription", "_tell_task", "honoured")

    def __init__(
        self,
        subscription: Subscription,
        honoured: Mapping[str, Any],
        *,
        still_allowed: Callable[[], Awaitable[bool]],
        ping: Callable[[], Awaitable[None]],
        tell_task: TellTask,
    ) -> None:
        self.honoured = honoured
        self._subscription = subscription
        self._still_allowed = still_allowed
        self._ping = ping
        self._tell_task = tell_task
        self._due_at = trio.current_time() + KEEP_ALIVE_SECONDS

    async def next_change(self) -> tuple[str, Mapping[str, Any]] | None:
        while True:
            topic: Topic | None = None
            # Looked at here as well: where there is always something to tell, nothing waits long enough to be cancelled.
            due = trio.current_time() >= self._due_at
            if not due:
                with trio.move_on_at(self._due_at) as waiting:
                    topic = await self._subscription.next_change()
                due = waiting.cancelled_caught
            if not due:
                if topic is None:
                    return None
                told = await self._told(topic)
                if told is not None:
                    return told
                continue
            if not await self._still_allowed():
                return None
            await self._ping()
            self._due_at = trio.current_time() + KEEP_ALIVE_SECONDS

    async def _told(self, topic: Topic) -> tuple[str, Mapping[str, Any]] | None:
        kind, _, name = topic.partition(" ")
        if not name:
            return f"notifications/{kind}/list_changed", {}
        if kind == "resource":
            return "notifications/resources/updated", {"uri": name}
        task = await self._tell_task(name)
        return None if task is None else ("notifications/tasks", task)
