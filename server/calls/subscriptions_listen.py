"""`subscriptions/listen`: what it asks for, what of that is honoured, and what it is told until it ends.

At each sign of life it is asked whether the caller may still be here: a token that has run out, or a login that was ended, ends
it, since no further request would. Spec: basic/patterns/subscriptions (2026-07-28), and `taskIds` of the tasks extension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import trio
from msgspec import UNSET

from server.calls.caller_outlet import KEEP_ALIVE_SECONDS
from server.calls.caller_tasks import CallerTasks
from server.calls.request import Request
from server.calls.resource_methods import asking, follow, readable
from server.calls.sessions.subscriptions import (
    MAX_TOPIC_CHARACTERS,
    MAX_TOPICS,
    Subscription,
    Topic,
    resource_topic,
    task_topic,
)
from server.mcp.errors import TooManySubscriptions
from server.mcp.method_params import ListenFilter, ListenParams
from server.mcp.result_encoding import SUBSCRIPTION_ID, ListenResult, encode_notification


class FeedTopics(msgspec.Struct, frozen=True):
    """The topics that a subscription listens for, and the way its client is told of them."""

    topics: frozenset[Topic]
    honoured: Mapping[str, Any]


async def listen(request: Request) -> ListenResult:
    """Tell the client of changes until the server or the client ends it. The subscription is registered before the acknowledgement goes out, so that a change made the
    moment the client has read it is not lost."""
    asked = cast("ListenParams", request.route.params).notifications
    check_bounds(asked)
    desk = CallerTasks(request)
    task_ids = None
    if asked.task_ids is not UNSET and desk.face is not None:
        task_ids = await desk.own(asked.task_ids)
    found = topics_of(request, asked, task_ids)
    principal, meta = request.principal, {SUBSCRIPTION_ID: request.id}
    # Callers without a login are all one subject, so a cap for each would be a cap for all of them.
    caller = f"{principal.kind.value}:{principal.subject}" if request.principal.identified else None
    with request.endpoint.subscriptions.open(caller, found.topics, request.apart) as subscription:
        request.subscription = subscription
        for task_id in task_ids or ():  # how each stands now: it may have changed since it was looked up
            subscription.offer(task_topic(task_id))
        if request.ending:
            subscription.end()
        told = {"notifications": found.honoured, "_meta": meta}
        await request.line.send(encode_notification("notifications/subscriptions/acknowledged", told))
        await tell_changes(request, subscription, desk, meta)
    return ListenResult(request.id)


async def tell_changes(
    request: Request, subscription: Subscription, desk: CallerTasks, meta: Mapping[str, Any]
) -> None:
    due_at = trio.current_time() + KEEP_ALIVE_SECONDS
    while True:
        topic: Topic | None = None
        # Looked at here as well: where there is always something to tell, nothing waits long enough to be cancelled.
        due = trio.current_time() >= due_at
        if not due:
            with trio.move_on_at(due_at) as waiting:
                topic = await subscription.next_change()
            due = waiting.cancelled_caught
        if due:
            if not await request.still_allowed():
                return
            await request.line.ping()
            due_at = trio.current_time() + KEEP_ALIVE_SECONDS
        elif topic is None:
            return
        elif (change := await _worded(topic, desk)) is not None:
            method, about = change
            await request.line.send(encode_notification(method, {**about, "_meta": meta}))


async def _worded(topic: Topic, desk: CallerTasks) -> tuple[str, Mapping[str, Any]] | None:
    """Return the notification, method and parameters; None: a task that is forgotten."""
    kind, _, name = topic.partition(" ")
    if not name:
        return f"notifications/{kind}/list_changed", {}
    if kind == "resource":
        return "notifications/resources/updated", {"uri": name}
    task = await desk.tell(name)
    return None if task is None else ("notifications/tasks", task)


def check_bounds(asked: ListenFilter) -> None:
    """Refuse what is too long before any of it is looked up, since that is what costs. Raises `TooManySubscriptions`."""
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


def topics_of(request: Request, asked: ListenFilter, task_ids: Sequence[str] | None) -> FeedTopics:
    """Return what can be listened for. `task_ids`: those asked for that are the caller's, None where tasks are not offered."""
    endpoint = request.endpoint
    topics: set[Topic] = set()
    honoured: dict[str, Any] = {}
    for topic, name, is_wanted in (
        ("tools", "toolsListChanged", asked.tools_list_changed),
        (
            "prompts",
            "promptsListChanged",
            asked.prompts_list_changed and "prompts" in endpoint.catalog.features,
        ),
        ("resources", "resourcesListChanged", asked.resources_list_changed and endpoint.has_resources),
    ):
        if is_wanted:
            topics.add(topic)
            honoured[name] = True
    if asked.resource_subscriptions is not UNSET and "subscribe" in endpoint.catalog.features:
        uris = [uri for uri in dict.fromkeys(asked.resource_subscriptions) if readable(request, uri)]
        topics.update(resource_topic(uri) for uri in uris)
        for uri in uris:
            follow(request.endpoint, uri, asking(request, uri))
        honoured["resourceSubscriptions"] = uris
    if task_ids is not None:
        topics.update(task_topic(task_id) for task_id in task_ids)
        honoured["taskIds"] = task_ids
    return FeedTopics(frozenset(topics), honoured)
