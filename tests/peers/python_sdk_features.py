"""The official Python SDK doing everything it can with the server of fixtures, over HTTP or as the parent of `serve --stdio`.

usage: python python_sdk_features.py MODE URL | MODE -- COMMAND…       MODE: legacy, auto, or a revision such as 2026-07-28
Prints one JSON object: what came of each feature, under its name. Judging it is the business of the test.
"""

import asyncio
import base64
import json
import sys
from typing import Any, Literal

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import (
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    Request,
    RequestParams,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    Result,
    Root,
    TextContent,
    ToolListChangedNotification,
)

PATIENCE = 60  # seconds that anything may take on a slow machine
TASKS = "io.modelcontextprotocol/tasks"


class Told:
    """What the server told or asked without being asked itself."""

    def __init__(self) -> None:
        self.logged: list[Any] = []
        self.asked: list[str] = []
        self.changed: list[str] = []
        self._news = anyio.Event()

    async def log(self, params: Any) -> None:
        self.logged.append(params.data)

    async def elicit(self, _context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        answers: dict[str, Any] = {}
        for name, schema in params.requested_schema["properties"].items():
            choices = schema.get("enum") or [choice["const"] for choice in schema.get("oneOf", [])]
            boolean = True if schema.get("type") == "boolean" else f"my {name}"
            answers[name] = choices[0] if choices else boolean
        return ElicitResult(action="accept", content=answers)

    async def sample(self, _context: Any, params: Any) -> CreateMessageResult:
        self.asked.append(params.messages[0].content.text)
        return CreateMessageResult(role="assistant", content=TextContent(text="a sample"), model="none")

    async def roots(self, _context: Any) -> ListRootsResult:
        self.asked.append("roots")
        return ListRootsResult(roots=[Root(uri="file:///srv/project", name="project")])

    async def message(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.tell("tools")
        elif isinstance(message, ResourceUpdatedNotification):
            self.tell(message.params.uri)

    def tell(self, what: str) -> None:
        self.changed.append(what)
        self._news.set()
        self._news = anyio.Event()

    async def until_changed(self, what: str) -> bool:
        with anyio.move_on_after(PATIENCE):
            while what not in self.changed:
                await self._news.wait()
            return True
        return False


class CreateTask(Result):
    result_type: Literal["task"]
    task_id: str
    poll_interval_ms: int | None = None


class TaskId(RequestParams):
    task_id: str


class GetTask(Request[TaskId, Literal["tasks/get"]]):
    name_param = "taskId"  # what the header Mcp-Name repeats
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskId


class TaskState(Result):
    status: str
    result: dict[str, Any] | None = None


class Tasks(ClientExtension):
    """The tasks extension, by the means that the SDK has for extensions: a claim on another shape of result."""

    identifier = TASKS

    def __init__(self) -> None:
        self.states: list[str] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreateTask, resolve=self.resolve)]

    async def resolve(self, created: CreateTask, context: ClaimContext) -> CallToolResult:
        with anyio.fail_after(PATIENCE):
            while True:
                state = await context.session.send_request(
                    GetTask(params=TaskId(task_id=created.task_id)), TaskState
                )
                self.states.append(state.status)
                if state.status not in ("working", "input_required"):
                    return CallToolResult.model_validate(state.result)
                await anyio.sleep(0.1)


def text(result: Any) -> str:
    return " ".join(block.text for block in result.content if block.type == "text")


async def code_of(failing: Any) -> int | None:
    try:
        await failing
    except MCPError as error:
        return error.code
    return None


async def both_eras(client: Client, told: Told) -> dict[str, Any]:
    progress: list[Any] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append([done, total, message])

    tools = await client.list_tools()
    resources = await client.list_resources()
    templates = await client.list_resource_templates()
    prompts = await client.list_prompts()
    binary = (await client.read_resource("test://static-binary")).contents[0]
    prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "one", "arg2": "two"})
    failed = await client.call_tool("test_error_handling")
    completion = await client.complete(
        PromptReference(name="test_prompt_with_arguments"), {"name": "arg1", "value": "par"}
    )
    nothing = await client.complete(
        ResourceTemplateReference(uri="test://template/{id}/data"), {"name": "id", "value": ""}
    )
    mixed = await client.call_tool("test_multiple_content_types")
    return {
        "revision": client.protocol_version,
        "server": client.server_info.title if client.server_info else None,
        "tools": [tool.name for tool in tools.tools],
        "text": text(await client.call_tool("test_simple_text")),
        "kinds": [block.type for block in mixed.content],
        "structured": (await client.call_tool("weather", {"town": "Ghent"})).structured_content,
        "failed": [failed.is_error, text(failed)],
        "wrong_arguments": (await client.call_tool("weather", {"town": 7})).is_error,
        "unknown_tool": await code_of(client.call_tool("no_such_tool")),
        "progress_text": text(
            await client.call_tool("test_tool_with_progress", progress_callback=on_progress)
        ),
        "progress": progress,
        "logging_text": text(await client.call_tool("test_tool_with_logging")),
        "logged": told.logged,
        "elicitation": text(await client.call_tool("test_elicitation", {"message": "Who are you?"})),
        "sampling": text(await client.call_tool("test_sampling", {"prompt": "Say something"})),
        "roots": text(await client.call_tool("test_input_required_result_list_roots")),
        "rounds": text(await client.call_tool("test_input_required_result_multi_round")),
        "three_at_once": text(await client.call_tool("test_input_required_result_multiple_inputs")),
        "asked": told.asked,
        "resources": [resource.uri for resource in resources.resources],
        "templates": [template.uri_template for template in templates.resource_templates],
        "read": (await client.read_resource("test://static-text")).contents[0].text,
        "read_bytes": len(base64.b64decode(binary.blob)),
        "read_template": json.loads((await client.read_resource("test://template/42/data")).contents[0].text),
        "unknown_resource": await code_of(client.read_resource("test://nothing")),
        "prompts": [prompt.name for prompt in prompts.prompts],
        "prompt": prompt.messages[0].content.text,
        "asking_prompt": (await client.get_prompt("test_input_required_result_prompt"))
        .messages[0]
        .content.text,
        "unknown_prompt": await code_of(client.get_prompt("no_such_prompt")),
        "completion": completion.completion.values,
        "no_completion": nothing.completion.values,
    }


async def stop_a_call(client: Client) -> bool:
    """Whether the server learned that the client waits no longer."""
    label = f"python {client.protocol_version}"
    with anyio.CancelScope() as scope:

        async def on_progress(_done: float, _total: float | None, _message: str | None) -> None:
            scope.cancel()

        await client.call_tool("wait_for_cancellation", {"label": label}, progress_callback=on_progress)
    with anyio.move_on_after(PATIENCE):
        while label not in text(await client.call_tool("stopped_calls")):
            await anyio.sleep(0.05)
        return True
    return False


async def legacy_only(client: Client, told: Told) -> dict[str, Any]:
    await client.send_ping()
    await client.subscribe_resource("test://watched-resource")
    await client.call_tool("touch_watched_resource")
    updated = await told.until_changed("test://watched-resource")
    await client.unsubscribe_resource("test://watched-resource")
    await client.call_tool("test_trigger_tool_change")
    return {"resource_updated": updated, "tools_changed": await told.until_changed("tools")}


async def modern_only(client: Client) -> dict[str, Any]:
    heard: list[str] = []
    watched = "test://watched-resource"
    async with client.listen(tools_list_changed=True, resource_subscriptions=[watched]) as subscription:
        await client.call_tool("touch_watched_resource")
        await client.call_tool("test_trigger_tool_change")
        with anyio.move_on_after(PATIENCE):
            async for event in subscription:
                heard.append(type(event).__name__)
                if len(set(heard)) == 2:
                    break
        honored = subscription.honored.model_dump(by_alias=True, exclude_none=True)
    return {"heard": sorted(set(heard)), "honored": honored}


async def as_task(target: Any, mode: str) -> dict[str, Any]:
    tasks = Tasks()
    async with Client(target, mode=mode, extensions=[tasks]) as client:
        result = await client.call_tool("slow_compute", {"seconds": 0.3, "label": "task"})
    return {"task_text": text(result), "task_states": tasks.states}


async def main(mode: str, target: Any) -> None:
    told = Told()
    client = Client(
        target,
        mode=mode,
        log_level="info",
        logging_callback=told.log,
        elicitation_callback=told.elicit,
        sampling_callback=told.sample,
        list_roots_callback=told.roots,
        message_handler=told.message,
        read_timeout_seconds=PATIENCE,
    )
    async with client:
        legacy = client.protocol_version < "2026"
        if legacy:
            await client.set_logging_level("info")
        found = await both_eras(client, told)
        found |= await (legacy_only(client, told) if legacy else modern_only(client))
        found["stopped"] = await stop_a_call(client)
    if not legacy:
        found |= await as_task(target, mode)
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[2] == "--":
        asyncio.run(main(sys.argv[1], StdioServerParameters(command=sys.argv[3], args=sys.argv[4:])))
    else:
        asyncio.run(main(sys.argv[1], sys.argv[2]))
