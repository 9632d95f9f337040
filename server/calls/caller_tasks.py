"""A caller's view of its tasks during one request: all of tasks/* goes through here.

The engine is server/calls/tasks; what a task looks like to which caller, mcp/task_faces.py's; the methods, task_methods.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from server.agents.base.catalog import ToolEntry
from server.calls.caller_outlet import Answers
from server.calls.charge_before_task import charge_ahead, let_go_ahead
from server.calls.question_routes import ask_in_session
from server.calls.request import Request
from server.calls.rights.standing import Standing
from server.calls.servers.endpoint import TaskRules
from server.calls.task_question_relay import put
from server.calls.tasks.task_order import owner_of
from server.calls.tools_call import refusal_of, settle_tool, start_task
from server.mcp.errors import BadParams, MethodNotFound, MissingCapability, UnknownTask, UnknownTool
from server.mcp.messages import TextContent
from server.mcp.method_params import CallToolParams
from server.mcp.task_faces import REQUIRED_CAPABILITY, Place, Snapshot, extension, place_of, related


class CallerTasks:
    """The tasks of one caller. Methods raise `UnknownTask`, also for what is somebody else's, and for what came of a tool that this caller may not
    call: one person's logins with one program share their tasks, but not what they may."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.face = request.endpoint.task_face(request.revision)
        self.owner = owner_of(request.principal, request.endpoint.name)

    @property
    def declared(self) -> bool:
        """The declaration of the extension in this very request."""
        return self._request.declares_tasks

    @property
    def lists(self) -> bool:
        """The ability to tell the caller from others, so that a list of its tasks is its own."""
        return self.owner.known

    @property
    def _rules(self) -> TaskRules:
        rules = self._request.endpoint.tasks
        if rules is None:
            raise MethodNotFound("tasks")
        return rules

    async def get(self, task_id: str) -> Snapshot:
        task = await self._rules.engine.get(task_id, self.owner)
        if not self._may_see(task):
            raise UnknownTask
        return task

    def _may_see(self, task: Snapshot) -> bool:
        """Say whether the caller may see a task: always, where its tool is there no more and nothing bounds it."""
        endpoint = self._request.endpoint
        tool = endpoint.tool_called(task.tool)
        return tool is None or endpoint.rights.standing(self._request.principal, tool) is Standing.ALLOWED

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> Snapshot:
        await self.get(task_id)
        return await self._rules.engine.answer(task_id, self.owner, answers, load=self._request.load)

    async def cancel(self, task_id: str, *, reason: str) -> Snapshot:
        """Cancel a task. Raises `TaskOver`."""
        await self.get(task_id)
        return await self._rules.engine.cancel(task_id, self.owner, reason=reason)

    async def wait(self, task_id: str, *, seen: frozenset[str]) -> Snapshot:
        """Wait until it is over, or asks something that is not among what was `seen`."""
        await self.get(task_id)
        return await self._rules.engine.wait(task_id, self.owner, seen=seen)

    async def list(self, *, after: Place | None, limit: int) -> Sequence[Snapshot]:
        """List the tasks, newest first, without their results."""
        found: list[Snapshot] = []
        while len(found) < limit:  # what an owner may keep is bounded
            page = await self._rules.engine.list(self.owner, after=after, limit=limit)
            found += [task for task in page if self._may_see(task)]
            if len(page) < limit:
                break
            after = place_of(page[-1])
        return found[:limit]

    async def start(self, tool: str, arguments: Mapping[str, Any]) -> Snapshot:
        """Start a task because the caller wants one. Raises `TooManyTasks`, what calling the tool would raise, and `BadParams` for
        arguments that do not fit."""
        if self.face is None:
            raise MethodNotFound("tasks")
        call = CallToolParams(name=tool, arguments=dict(arguments), meta=self._request.route.params.meta)
        request = msgspec.structs.replace(
            self._request, route=msgspec.structs.replace(self._request.route, params=call), headers=None
        )
        settle_tool(request, tool)
        if request.tool is None:
            raise UnknownTool(tool)
        tool = request.tool.tool.name  # it may have been called by an old one
        refusal = refusal_of(request, request.tool)
        if refusal is not None:
            raise BadParams(
                "\n".join(block.text for block in refusal.content if isinstance(block, TextContent))
            )
        await self._count(request, tool)
        try:
            return await self._begin(request, request.tool)
        except BaseException:
            self._uncount(request, tool)
            raise

    async def _begin(self, request: Request, tool: ToolEntry) -> Snapshot:
        assert self.face is not None
        if (answer := await charge_ahead(request, tool)) is not None:
            raise BadParams(
                "\n".join(block.text for block in answer.content if isinstance(block, TextContent))
            )
        try:
            return await start_task(request, self._rules, self.face, None)
        except BaseException:
            await let_go_ahead(request)
            raise

    async def _count(self, request: Request, tool: str) -> None:
        """Count a call. Raises `BadParams` for a tool that the caller may not call just now."""
        limits = request.endpoint.limits
        if limits is None or limits.bounds is None:
            return
        from server.calls.limit_stage import count_call

        if (denied := await count_call(request, tool)) is not None:
            raise BadParams(
                "\n".join(block.text for block in denied.content if isinstance(block, TextContent))
            )

    def _uncount(self, request: Request, tool: str) -> None:
        if request.endpoint.limits is not None and request.endpoint.limits.bounds is not None:
            from server.calls.limit_stage import uncount

            uncount(request, tool)

    def fetch(self, task_id: str) -> AbstractContextManager[None]:
        """Return a block in which the caller waits for the result, and is who is asked what the task asks."""
        return self._rules.engine.fetch(task_id)

    async def ask(self, task_id: str, questions: Mapping[str, Any]) -> None:
        """Put what a task asks to the caller who waits for it, until it is answered, here or elsewhere. Raises `MissingCapability`,
        `BackendFailed`."""

        async def ask() -> Answers:
            return await ask_in_session(self._request, questions, related(task_id))

        answers = await put(self._rules.engine, self.owner, task_id, questions, ask)
        if answers is not None:
            await self.answer(task_id, answers)

    async def own(self, task_ids: Sequence[str]) -> list[str]:
        """Return those of these tasks that are the caller's. Raises `MissingCapability`."""
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
        """Tell how a task stands, for a subscription; None when it is forgotten."""
        try:
            return extension(await self.get(task_id))
        except UnknownTask:
            return None
