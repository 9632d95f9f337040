"""Where a caller sees to its tasks, and where it is settled whether a call is one.

The engine is engine.py's; what a task looks like to which caller, mcp/tasks.py's; the methods, mcp/task_handlers.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import trio

from auth.model import Principal
from server.backends.base import Outlet
from server.calls import Asked, Calls, too_slow
from server.mcp.errors import (
    AgentError,
    BadParams,
    MethodNotFound,
    MissingCapability,
    TooManyTasks,
    UnknownTask,
)
from server.mcp.messages import TextContent, Tool
from server.mcp.params import CallToolParams
from server.mcp.results import Shaped, ToolResult
from server.mcp.tasks import (
    EXTENSION_NAME,
    REQUIRED_CAPABILITY,
    AtOnce,
    ByHand,
    Completed,
    Face,
    Failed,
    Place,
    Refuse,
    Snapshot,
    created,
    extension,
    manner,
    place_of,
    wasmagent_tool,
)
from server.mcp.versions import Revision
from server.store.jobs import StoreUnavailable
from server.tasks.engine import Tasks
from server.tasks.order import Order, Owner, Who, owner_of


class Tasking(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks as one configured server has them."""

    name: str  # the server's
    tasks: Tasks
    calls: Calls
    wasmagent: bool  # the handshake era has them in the dialect of `compat.tasks`
    sync_timeout_seconds: float
    ttl_ms: int  # unless the caller asks for less

    def face(self, revision: Revision) -> Face | None:
        """What tasks look like in this revision; None where there are none."""
        if self.wasmagent and not revision.modern:
            return Face.WASMAGENT
        if not self.calls.has_tasks:
            return None
        if revision.modern:
            return Face.EXTENSION
        return Face.CORE if revision.tasks else None

    def listed(self, tools: Sequence[Tool], revision: Revision) -> Sequence[Tool]:
        """The tools, with what the callers of this revision are told of their being tasks."""
        return [wasmagent_tool(tool) for tool in tools] if self.face(revision) is Face.WASMAGENT else tools

    async def call(
        self, asked: Asked, line: Outlet, desk: Desk, params: CallToolParams
    ) -> ToolResult | Shaped:
        """A call that is answered with its result, or with a task. Raises as `Calls.call` does."""
        entry = self.calls.entry(asked.principal, asked.tool)
        face = desk.face
        if entry is None or face is None:
            return await self.calls.call(asked)
        wish: Any = params.task
        how = manner(
            face,
            entry.tool.execution,
            declared=desk.declared,
            asked=isinstance(wish, dict),
            sync_timeout_seconds=self.sync_timeout_seconds,
        )
        if isinstance(how, Refuse):
            raise how.error
        if not isinstance(how, AtOnce | ByHand):
            return await self.calls.call(asked)
        refusal = self.calls.admit(asked)
        if refusal is not None:
            return refusal
        order = self._order(asked)
        if isinstance(how, AtOnce):
            try:
                return created(face, await self._start(order, desk, face, _ttl(wish)))
            except (TooManyTasks, StoreUnavailable):
                if not how.or_waits:
                    raise
                return await self.calls.call(asked)
        found: Snapshot | Completed | Failed | None = None
        # What bounds a task is its time to live; until it is one, somebody waits.
        with trio.move_on_after(entry.terms.deadline_seconds):
            found = await self.tasks.attempt(
                order,
                line,
                owner=desk.owner,
                face=face,
                after_seconds=how.after_seconds,
                ttl_ms=self.ttl_ms,
            )
        match found:
            case Snapshot():
                return created(face, found)
            case Completed(result):
                return result
            case Failed(code, message, data):
                raise AgentError(code, message, data)
            case None:
                return too_slow(asked.tool, entry.terms.deadline_seconds)

    async def begin(self, asked: Asked, desk: Desk, face: Face) -> Snapshot:
        """A task because the caller wants one. Raises as `Calls.call` does, and `InvalidArguments`."""
        refusal = self.calls.admit(asked)
        if refusal is not None:
            raise BadParams(
                "\n".join(block.text for block in refusal.content if isinstance(block, TextContent))
            )
        return await self._start(self._order(asked), desk, face, None)

    async def _start(self, order: Order, desk: Desk, face: Face, ttl_ms: int | None) -> Snapshot:
        return await self.tasks.start(
            order, owner=desk.owner, face=face, ttl_ms=min(ttl_ms or self.ttl_ms, self.ttl_ms)
        )

    def _order(self, asked: Asked) -> Order:
        return Order(
            server=self.name,
            tool=asked.tool,
            arguments=asked.arguments,
            principal=Who.of(asked.principal),
            call_id=asked.call_id,
            can=asked.can,
            resumed=asked.resumed,
        )


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether the client knows what to do with a task (2026-07-28)."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and EXTENSION_NAME in extensions


def _ttl(wish: Any) -> int | None:
    ttl = cast("Mapping[str, Any]", wish).get("ttl") if isinstance(wish, Mapping) else None
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else None


class Desk:
    """One caller's, during one request. Methods raise `UnknownTask`, also for what is somebody else's, and for what came of a
    tool that this caller may not call: one person's logins with one program share their tasks, but not what they may."""

    def __init__(
        self,
        tasking: Tasking | None,
        principal: Principal,
        revision: Revision,
        *,
        call_id: str,
        can: frozenset[str],
        declared: bool,
    ) -> None:
        self._tasking = tasking
        self._principal = principal
        self._call_id = call_id
        self._can = can
        self.face = None if tasking is None else tasking.face(revision)
        self.declared = declared  # the client declared the extension with this request

    @property
    def owner(self) -> Owner:
        return owner_of(self._principal, self._open.name)

    @property
    def _open(self) -> Tasking:
        if self._tasking is None:
            raise MethodNotFound("tasks")
        return self._tasking

    async def get(self, task_id: str) -> Snapshot:
        task = await self._open.tasks.get(task_id, self.owner)
        if not self._may_see(task):
            raise UnknownTask
        return task

    def _may_see(self, task: Snapshot) -> bool:
        return self._open.calls.opens(self._principal, task.tool)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> Snapshot:
        await self.get(task_id)
        return await self._open.tasks.answer(task_id, self.owner, answers)

    async def cancel(self, task_id: str, *, reason: str) -> Snapshot:
        """Raises `TaskOver`."""
        await self.get(task_id)
        return await self._open.tasks.cancel(task_id, self.owner, reason=reason)

    async def wait(self, task_id: str, *, seen: frozenset[str]) -> Snapshot:
        """Until it is over, or asks something that was not `seen`."""
        await self.get(task_id)
        return await self._open.tasks.wait(task_id, self.owner, seen=seen)

    @property
    def lists(self) -> bool:
        """Whether the caller can be told from others, so that a list of its tasks is its own."""
        return self.owner.known

    async def list(self, *, after: Place | None, limit: int) -> Sequence[Snapshot]:
        found: list[Snapshot] = []
        while len(found) < limit:  # what an owner may keep is bounded
            page = await self._open.tasks.list(self.owner, after=after, limit=limit)
            found += [task for task in page if self._may_see(task)]
            if len(page) < limit:
                break
            after = place_of(page[-1])
        return found[:limit]

    async def start(self, tool: str, arguments: Mapping[str, Any]) -> Snapshot:
        """Raises what calling the tool would raise."""
        asked = Asked(self._principal, tool, arguments, self._call_id, can=self._can)
        if self.face is None:
            raise MethodNotFound("tasks")
        return await self._open.begin(asked, self, self.face)

    async def own(self, task_ids: Sequence[str]) -> list[str]:
        """Those that are the caller's. Raises `MissingCapability`."""
        if not self.declared:
            raise MissingCapability(REQUIRED_CAPABILITY)
        found: list[str] = []
        for task_id in dict.fromkeys(task_ids):
            try:
                await self.get(task_id)
            except UnknownTask:
                continue
            found.append(task_id)
        return found

    async def tell(self, task_id: str) -> Mapping[str, Any] | None:
        """How it stands, for a subscription; None when it is forgotten."""
        try:
            return extension(await self.get(task_id))
        except UnknownTask:
            return None
