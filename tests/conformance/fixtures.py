"""What the official conformance suite expects a server to offer, written as any author of an agent would write it.

It runs in a child of the user's Python, through the package `ostiary` alone; the server knows nothing of it. Names, texts and
schemas are the suite's. The order matters once: a check calls the first tool of the list with no arguments.

The last section is not the suite's: it lets the official clients see what the suite does not ask for.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Annotated, Any, TypedDict

from ostiary import (
    Audio,
    Context,
    Embedded,
    Image,
    NotFound,
    ProtocolError,
    Text,
    ToolFailure,
    add_prompt,
    add_tool,
    completion,
    elicitation,
    prompt,
    remove_prompt,
    remove_tool,
    resource,
    roots,
    sampling,
    tool,
    updated,
)

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
A_MOMENT = 0.05  # seconds between two notifications: long enough that they arrive one by one

there: set[str] = set()  # what was added to the lists at run time
touched: list[str] = []  # changes of the watched resource
stopped: list[str] = []  # labels of calls that were cancelled


def object_of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


NAME = object_of(("name",), name={"type": "string"})
OK = object_of(("ok",), ok={"type": "boolean"})


# Both eras: content of every kind.


@tool
def test_simple_text() -> str:
    """Answers with one text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Image:
    """Answers with an image."""
    return Image(PIXEL, "image/png")


@tool
def test_audio_content() -> Audio:
    """Answers with a sound."""
    return Audio(SILENCE, "audio/wav")


@tool
def test_embedded_resource() -> Embedded:
    """Answers with a resource inside the answer."""
    return Embedded(
        "test://embedded-resource", text="This is an embedded resource content.", mime_type="text/plain"
    )


@tool
def test_multiple_content_types() -> list[Text | Image | Embedded]:
    """Answers with a text, an image and a resource."""
    return [
        Text("Multiple content types test:"),
        Image(PIXEL, "image/png"),
        Embedded(
            "test://mixed-content-resource", text='{"test":"data","value":123}', mime_type="application/json"
        ),
    ]


@tool
def test_error_handling() -> str:
    """Fails, and says so to the model."""
    raise ToolFailure("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Tells how far it has come, three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(A_MOMENT)
    return "All steps are done."


@tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Takes arguments that only JSON Schema 2020-12 can describe."""
    return json.dumps(arguments)


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that stays the same."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image that stays the same."""
    return PIXEL


@resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> str:  # noqa: A002, the template's variable is called so
    """One of many, by its number."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text that somebody may wait for."""
    return f"Watched resource content, changed {len(touched)} times"


@prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt
def test_prompt_with_arguments(arg1: Annotated[str, "the first"], arg2: Annotated[str, "the second"]) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(
    resourceUri: Annotated[str, "what to embed"],  # noqa: N803, the suite's name
) -> list[Embedded | str]:
    """A prompt with a resource in it."""
    return [
        Embedded(resourceUri, text="Embedded resource content for testing.", mime_type="text/plain"),
        "Please process the embedded resource above.",
    ]


@prompt
def test_prompt_with_image() -> list[Image | str]:
    """A prompt with an image in it."""
    return [Image(PIXEL, "image/png"), "Please analyze the image above."]


@completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list[str]:
    return [word for word in ("paris", "park", "party") if word.startswith(value)]


# Handshake era: what the server asks of its client while a call runs. It works in the stateless era just as well.


@tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Writes three lines to the client's log."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(line)
        await asyncio.sleep(A_MOMENT)
    return "Three lines were logged."


@tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Lets the client's model answer."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


@tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the person at the client."""
    answer = await ctx.elicit(
        message,
        object_of(
            ("username", "email"),
            username={"type": "string", "description": "User's response"},
            email={"type": "string", "description": "User's email address"},
        ),
    )
    return f"User response: {described(answer)}"


@tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with a default for every kind of field."""
    answer = await ctx.elicit(
        "Please review and update the form fields with defaults",
        object_of(
            name={"type": "string", "description": "User name", "default": "John Doe"},
            age={"type": "integer", "description": "User age", "default": 30},
            score={"type": "number", "description": "User score", "default": 95.5},
            status={
                "type": "string",
                "description": "User status",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            verified={"type": "boolean", "description": "Verification status", "default": True},
        ),
    )
    return f"Elicitation completed: {described(answer)}"


@tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with every form of a choice."""
    options = ["option1", "option2", "option3"]

    def titled(noun: str) -> list[dict[str, str]]:
        ranks = ("First", "Second", "Third")
        return [{"const": f"value{n}", "title": f"{rank} {noun}"} for n, rank in enumerate(ranks, 1)]

    answer = await ctx.elicit(
        "Please select options from the enum fields",
        {
            "type": "object",
            "properties": {
                "untitledSingle": {"type": "string", "enum": options},
                "titledSingle": {"type": "string", "oneOf": titled("Option")},
                "legacyEnum": {
                    "type": "string",
                    "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"],
                },
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
            },
            "required": [],
        },
    )
    return f"Elicitation completed: {described(answer)}"


@tool
async def test_reconnection(ctx: Context) -> str:
    """Lets go of the connection in the middle; the answer is fetched later."""
    await ctx.close_stream()
    await asyncio.sleep(4 * A_MOMENT)
    return "Reconnection test completed successfully."


def described(answer: Any) -> str:
    return f"action={answer.action}, content={json.dumps(answer.content or {})}"


# Stateless era.


@tool
async def test_missing_capability(ctx: Context) -> str:
    """Cannot work without a client that samples."""
    answer = await ctx.sample("Say hello", max_tokens=50)
    return f"Client declared sampling, and said: {answer.text}"


@tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Asks on whatever way the client can be asked."""
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    return f"Streaming elicitation: {described(answer)}"


@tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs a line to clients that asked for the log."""
    await ctx.info("A line of the log")
    return "Logging is done."


@tool
def test_trigger_tool_change() -> str:
    """Changes the list of tools."""

    def test_dynamic_tool() -> str:
        """Is here only for a while."""
        return "dynamic"

    if "tool" in there:
        there.discard("tool")
        remove_tool("test_dynamic_tool")
    else:
        there.add("tool")
        add_tool(test_dynamic_tool)
    return "The list of tools has changed."


@tool
def test_trigger_prompt_change() -> str:
    """Changes the list of prompts."""

    def test_dynamic_prompt() -> str:
        """Is here only for a while."""
        return "dynamic"

    if "prompt" in there:
        there.discard("prompt")
        remove_prompt("test_dynamic_prompt")
    else:
        there.add("prompt")
        add_prompt(test_dynamic_prompt)
    return "The list of prompts has changed."


@tool(
    input_schema=object_of(
        region={
            "type": "string",
            "description": "Goes into the header Mcp-Param-Region, too",
            "x-mcp-header": "Region",
        }
    )
)
def test_x_mcp_header(region: str = "nowhere") -> str:  # noqa: PT028, no test of pytest's
    """Takes an argument that a header repeats."""
    return f"region={region}"


@tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name and greets."""
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {(answer.content or {}).get('name', 'stranger')}!"


@tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Lets the client's model answer one question."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model said: {answer.text}"


@tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Names the folders that the client works on."""
    found = await ctx.roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in found)}"


@tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Goes on where it stopped when the answer comes."""
    await ctx.checkpoint({"asked": "confirm"})
    answer = await ctx.elicit("Please confirm", OK, key="confirm")
    return f"state-ok: {described(answer)}"


@tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks the person, the model and the client at once."""
    answers = await ctx.ask(
        {
            "user_name": elicitation("What is your name?", NAME),
            "greeting": sampling("Generate a greeting", max_tokens=50),
            "client_roots": roots(),
        }
    )
    name = (answers["user_name"].content or {}).get("name")
    return f"{name} in {len(answers['client_roots'])} roots: {answers['greeting'].text}"


@tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks twice, one after the other."""
    name = await ctx.elicit("Step 1: What is your name?", NAME, key="step1")
    color = await ctx.elicit(
        "Step 2: What is your favorite color?", object_of(("color",), color={"type": "string"}), key="step2"
    )
    return f"{(name.content or {}).get('name')} likes {(color.content or {}).get('color')}."


@tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks, and is told if the state that comes back is not what was sent."""
    answer = await ctx.elicit("Please confirm", OK, key="confirm")
    return f"state-ok: {described(answer)}"


@tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only for what the client can do."""
    questions: dict[str, Any] = {}
    if ctx.can("sampling"):
        questions["sample"] = sampling("Say hello", max_tokens=50)
    if ctx.can("elicitation"):
        questions["ask"] = elicitation("What is your name?", NAME)
    answers = await ctx.ask(questions) if questions else {}
    return f"Answered: {', '.join(sorted(answers))}"


@prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Asks what it is about before it says anything."""
    answer = await ctx.elicit(
        "What context should the prompt use?",
        object_of(("context",), context={"type": "string"}),
        key="user_context",
    )
    return f"Use the following context: {(answer.content or {}).get('context')}"


# Tasks.


@tool
def greet(name: str) -> str:
    """Greets at once."""
    return f"Hello, {name}!"


@tool(task="optional")
async def slow_compute(seconds: float, label: str = "", *, ctx: Context) -> str:
    """Takes its time."""
    await ctx.progress(0, seconds or 1, "started")
    await asyncio.sleep(seconds)
    return f"Computed {label!r} in {seconds:g} s."


@tool(task="required")
async def failing_job() -> str:
    """Finds out late that it cannot be done."""
    await asyncio.sleep(1)
    raise ToolFailure("The job could not be done.")


@tool(task="optional")
async def protocol_error_job() -> str:
    """Ends with an error of the protocol."""
    await asyncio.sleep(4 * A_MOMENT)
    raise ProtocolError("The job broke down.", -32603)


@tool(task="optional")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Deletes nothing before it was confirmed, and nothing then."""
    answer = await ctx.elicit(f"Delete {filename}?", object_of(("confirm",), confirm={"type": "boolean"}))
    agreed = answer.action == "accept" and (answer.content or {}).get("confirm") is True
    return f"{filename} {'would be deleted' if agreed else 'is kept'}."


@tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Asks two things at once and waits for both."""
    answers = await ctx.ask(
        {
            "name": elicitation("What is it called?", NAME),
            "confirm": elicitation("Are you sure?", object_of(("confirm",), confirm={"type": "boolean"})),
        }
    )
    return json.dumps({key: answer.content for key, answer in answers.items()})


@tool(task="by_hand")
async def test_tool_with_task(ctx: Context) -> str:
    """Asks first, and becomes a task with the answer."""
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    await ctx.become_task()
    await asyncio.sleep(4 * A_MOMENT)
    return f"The task of {(answer.content or {}).get('name')} is done."


# Not the suite's: what its checks leave out and the official clients can see.


class Weather(TypedDict):
    town: str
    degrees: float


@tool
def weather(town: str) -> Weather:
    """Structured output."""
    return {"town": town, "degrees": 21.5}


@tool
def touch_watched_resource() -> str:
    """Changes test://watched-resource."""
    touched.append("once more")
    updated("test://watched-resource")
    return f"It was changed {len(touched)} times."


@tool
async def wait_for_cancellation(label: str, ctx: Context) -> str:
    """Runs until somebody stops it; `stopped_calls` knows that it was."""
    await ctx.progress(0, None, "waiting")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        stopped.append(label)
        raise
    return "nobody stopped it"


@tool
def stopped_calls() -> list[str]:
    """Labels of the calls that were stopped."""
    return list(stopped)


@resource("test://rooms/{number}")
def room(number: str) -> str:
    """A room, if there is one of this number."""
    if not number.isdigit():
        raise NotFound(f"there is no room {number}")
    return f"Room {number}"
