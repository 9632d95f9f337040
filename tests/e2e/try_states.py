"""The pages on which somebody tries tools out, and those that say that the server itself cannot: tours for page_states.py.

What is drawn here is drawn from values, within the frame of a page: that the pages come to be is test_try_page_served.py's to look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace as replaced
from playwright.sync_api import Page

from auth.pages import front_page, html_shell
from auth.values import http_messages
from server.client.samples.sample_arguments import sample
from server.console.tryout import tryout_words
from server.console.tryout.tool_form import fields_of, sampled
from server.console.tryout.try_call import TryAnswer
from server.transport.http import fallback_answers
from tests.auth.offering_fakes import a_support_desk
from tests.e2e.chromium import Server

LONG = "a_tool_whose_name_goes_on_and_on_for_as_long_as_a_name_may_be_64"
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGNgGAWjYBSMglEAAAVkAAGvkqBHAAAAAElFTkSuQmCC"
)
NO_PROBLEMS: Final[Mapping[str, str]] = MappingProxyType({})
TOOL: dict[str, Any] = {
    "name": "book_table",
    "description": "Books a table, and says at which hour. Whoever booked it can cancel it until noon of that day.",
    "inputSchema": {
        "type": "object",
        "required": ["guests", "day"],
        "properties": {
            "guests": {"type": "integer", "title": "Guests", "description": "How many will come."},
            "day": {"type": "string", "enum": ["Friday", "Saturday"]},
            "terrace": {"type": "boolean", "description": "Outside, where it does not rain."},
            "wishes": {"type": "array", "items": {"type": "string"}},
            "contact": {
                "type": "object",
                "description": "Whom to call if it rains.",
                "properties": {"name": {"type": "string"}, "note": {"type": "string", "maxLength": 900}},
            },
            "more": {"type": "object"},
        },
    },
    "_meta": {"io.ostiary/price": {"words": "$0.01 a call; free until the end of the month"}},
}
TOOLS = [TOOL, {"name": LONG, "description": "Goes on. " * 30}, {"name": "clock"}]
CURL = "curl -X POST https://agent.example.org/mcp \\\n  -H 'Authorization: Bearer …' \\\n  -d '{\"jsonrpc\": \"2.0\"}'"


def _shown(server: Server, page: Page, template: str, title: str, **values: Any) -> None:
    frame = replace(html_shell.frame_for(server.origin, b"n" * html_shell.NONCE_BYTES), wide=True)
    server.otherwise = lambda _: html_shell.render(
        template, frame, title=title, **values, **tryout_words.WORDS
    )
    page.goto(server.origin + "/drawn")


def trying(server: Server, page: Page) -> Iterator[str]:
    """Tools to choose from, the form of one, what it asks and what it answers, and what goes wrong."""
    schema = TOOL["inputSchema"]
    fields = sampled(fields_of(schema, {}), fields_of(schema, sample(schema)))
    path = "/agent/try"

    def form(
        answer: TryAnswer | None = None, problems: Mapping[str, str] = NO_PROBLEMS, raw: str = ""
    ) -> None:
        _shown(
            server, page, "tryout_form.html", "book_table", path=path, tool=TOOL, fields=fields, hidden={}, raw=raw, problems=problems,
            whom="alice", answer=answer, program=CURL, changes=False,
        )  # fmt: skip

    def tools(title: str, those: Sequence[Any], **more: Any) -> None:
        given: dict[str, Any] = {"more": "", "first": "", "changing": (), **more}
        _shown(server, page, "tryout_tools.html", title, path=path, tools=those, **given)

    servers = [("/agent/try", "Support desk"), ("/archive/try", "archive")]
    _shown(server, page, "tryout_servers.html", "Try tools out", servers=servers)
    yield "try-servers"
    tools("Support desk", TOOLS, changing={LONG})
    yield "try-tools"
    many = [
        {"name": f"tool_number_{place}", "description": "Does one of many things."} for place in range(50)
    ]
    tools("Support desk", many, more="/agent/try?at=2", first="/agent/try")
    yield "try-tools-further"
    tools("archive", [])
    yield "try-no-tools"
    form()
    yield "try-form"
    form(problems={fields[0].name: "has to be a whole number", "raw": "is no JSON object"}, raw="[1, 2]")
    yield "try-form-wrong"
    result = {
        "content": [
            {"type": "text", "text": "Booked for four, on Friday at eight.\n" + "A long line goes on. " * 20},
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
            {"type": "resource_link", "uri": "https://example.org/bookings/" + "7" * 60},
        ],
        "structuredContent": {"table": 7, "hour": "20:00"},
    }
    form(TryAnswer(result=result, seconds=0.24))
    yield "try-answer"
    failed = {"isError": True, "content": [{"type": "text", "text": "There is no table left."}]}
    form(TryAnswer(result=failed, seconds=2.5))
    yield "try-answer-failed"
    form(TryAnswer(problem="book_table did not answer within 30 seconds, and was stopped.", seconds=30.0))
    yield "try-no-answer"
    params = {"mode": "form", "message": "Which day shall it be?"}
    elsewhere = {"mode": "url", "url": "https://pay.example/7", "message": "The deposit is paid there."}
    _shown(
        server, page, "tryout_questions.html", "book_table asks", path=path, tool=TOOL, hidden={}, problems={},
        asked=[("day", params, fields[:2]), ("pay", elsewhere, ())],
    )  # fmt: skip
    yield "try-asks"
    cancels = {**TOOL, "name": LONG, "annotations": {"destructiveHint": True}}
    _shown(
        server, page, "tryout_sure.html", f"Call {LONG}?", path=path, tool=cancels, hidden={}, whom="alice", changes=True,
        arguments={"guests": 4, "day": "Friday", "wishes": ["a long wish " * 20]},
    )  # fmt: skip
    yield "try-sure"


def out_of_order(server: Server, page: Page) -> Iterator[str]:
    """What a browser is told where only programs have something to do, and when the server itself cannot."""
    house, origin = server.house, server.origin
    frame = html_shell.frame_for(origin, house.entropy(html_shell.NONCE_BYTES))

    def programs(request: http_messages.WireRequest) -> http_messages.WireReply:
        return fallback_answers.for_programs(
            request, http_messages.WireReply(status=405), entropy=house.entropy
        )

    server.otherwise = programs
    page.goto(origin + "/for/programs")
    yield "for-programs"
    for name, reply in (
        ("store-full", fallback_answers.unavailable(frame)),
        ("store-damaged", fallback_answers.damaged(frame)),
        ("broken", fallback_answers.broken(frame, "0192f7a1c3d24e5f")),
    ):
        server.otherwise = lambda _, reply=reply: reply
        page.goto(f"{origin}/{name}")
        yield name
    site = replaced(house.parts.site, servers={"agent": "/mcp"}, without_login=frozenset({"agent"}))
    house.parts = replaced(house.parts, offerings=a_support_desk(), site=site)
    request = http_messages.WireRequest(method="GET", path="/", origin=origin, ip="")
    server.otherwise = lambda _: front_page.for_anybody(request, house.parts)
    page.goto(origin + "/open")
    yield "front-no-login"
