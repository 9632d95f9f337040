"""The pages on which somebody tries tools out, and those that say that the server itself cannot: tours for page_states.py.

What is drawn here is drawn from values, within the frame of a page: that the pages come to be is test_try_page_served.py's to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace as replaced
from playwright.sync_api import Page

from auth.pages import front_page, html_shell
from auth.values import http_messages
from server.client.samples.sample_arguments import sample
from server.console.tryout import tryout_html
from server.console.tryout.tool_form import fields_of, sampled
from server.console.tryout.try_call import TryAnswer
from server.transport.http import fallback_answers
from tests.auth.offering_fakes import a_support_desk
from tests.e2e.chromium import Server

LONG = "a_tool_whose_name_goes_on_and_on_for_as_long_as_a_name_may_be_64"
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGNgGAWjYBSMglEAAAVkAAGvkqBHAAAAAElFTkSuQmCC"
)
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


def _shown(server: Server, page: Page, title: str, body: Markup) -> None:
    frame = replace(html_shell.frame_for(server.origin, b"n" * html_shell.NONCE_BYTES), wide=True)
    server.otherwise = lambda _: html_shell.shell_page(title, body, frame)
    page.goto(server.origin + "/drawn")


def trying(server: Server, page: Page) -> Iterator[str]:
    """Tools to choose from, the form of one, what it asks and what it answers, and what goes wrong."""
    schema = TOOL["inputSchema"]
    fields = sampled(fields_of(schema, {}), fields_of(schema, sample(schema)))

    def form(**more: Any) -> Markup:
        given: dict[str, Any] = {"hidden": {}, "raw": "", "problems": {}, "as_whom": "alice", **more}
        return tryout_html.form("agent", TOOL, fields, **given)

    _shown(
        server,
        page,
        "Try tools out",
        tryout_html.servers([("/agent/try", "Support desk"), ("/archive/try", "archive")]),
    )
    yield "try-servers"
    _shown(server, page, "Support desk", tryout_html.tools("Support desk", "agent", TOOLS, changing={LONG}))
    yield "try-tools"
    many = [
        {"name": f"tool_number_{place}", "description": "Does one of many things."} for place in range(50)
    ]
    _shown(
        server,
        page,
        "Support desk",
        tryout_html.tools("Support desk", "agent", many, more="/agent/try?at=2", first="/agent/try"),
    )
    yield "try-tools-further"
    _shown(server, page, "archive", tryout_html.tools("archive", "archive", []))
    yield "try-no-tools"
    _shown(server, page, "book_table", form())
    yield "try-form"
    problems = {fields[0].name: "has to be a whole number", "raw": "is no JSON object"}
    _shown(server, page, "book_table", form(problems=problems, raw="[1, 2]"))
    yield "try-form-wrong"
    result = {
        "content": [
            {"type": "text", "text": "Booked for four, on Friday at eight.\n" + "A long line goes on. " * 20},
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
            {"type": "resource_link", "uri": "https://example.org/bookings/" + "7" * 60},
        ],
        "structuredContent": {"table": 7, "hour": "20:00"},
    }
    _shown(
        server, page, "book_table",
        form(above=tryout_html.answer(TOOL, TryAnswer(result=result, seconds=0.24), CURL)),
    )  # fmt: skip
    yield "try-answer"
    failed = {"isError": True, "content": [{"type": "text", "text": "There is no table left."}]}
    _shown(
        server, page, "book_table",
        form(above=tryout_html.answer(TOOL, TryAnswer(result=failed, seconds=2.5), CURL)),
    )  # fmt: skip
    yield "try-answer-failed"
    refused = TryAnswer(problem="book_table did not answer within 30 seconds, and was stopped.", seconds=30.0)
    _shown(server, page, "book_table", form(above=tryout_html.answer(TOOL, refused, CURL)))
    yield "try-no-answer"
    params = {"mode": "form", "message": "Which day shall it be?"}
    asked = [("day", params, fields[:2])]
    elsewhere = {"mode": "url", "url": "https://pay.example/7", "message": "The deposit is paid there."}
    _shown(
        server, page, "book_table asks",
        tryout_html.questions("agent", TOOL, [*asked, ("pay", elsewhere, ())], hidden={}, problems={}),
    )  # fmt: skip
    yield "try-asks"
    cancels = {**TOOL, "name": LONG, "annotations": {"destructiveHint": True}}
    shown = tryout_html.sure(
        "agent",
        cancels,
        {"guests": 4, "day": "Friday", "wishes": ["a long wish " * 20]},
        hidden={},
        as_whom="alice",
        changes=True,
    )
    _shown(server, page, f"Call {LONG}?", shown)
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
