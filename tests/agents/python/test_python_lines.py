"""The line protocol's frame, and what a catalog may be."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.agents.python.agent_lines import LINE_BYTES, CallContext, CallTool, write
from server.agents.python.offer import ENTRIES, AgentOffer, BadOffer, read_offer
from server.lib.line_peer import BrokenLine, LineFraming
from server.mcp.messages import ToolExecution


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_come_out_as_they_went_in_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    framing, found = LineFraming(LINE_BYTES), list[bytes]()
    rest = b"".join(line + b"\n" for line in lines)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += framing.feed(rest[:size])
        rest = rest[size:]
    assert found == lines


def test_a_line_of_the_limit_passes_and_a_longer_one_does_not_even_if_it_never_ends() -> None:
    assert list(LineFraming(5).feed(b"12345\n")) == [b"12345"]
    with pytest.raises(BrokenLine):
        list(LineFraming(5).feed(b"123456\n"))
    unending = LineFraming(5)
    assert list(unending.feed(b"12345")) == []
    with pytest.raises(BrokenLine):
        list(unending.feed(b"6"))


def test_a_call_is_one_line_whatever_it_holds() -> None:
    context = CallContext(subject="u\n", call_id="c")
    line = write(CallTool(id=1, context=context, name="t", arguments={"a": "\n\u2028\ud7ff"}))
    assert line.count(b"\n") == 1
    assert json.loads(line)["arguments"] == {"a": "\n\u2028\ud7ff"}


SCHEMA = {"type": "object"}


def offered(**catalog: Any) -> AgentOffer:
    return read_offer(msgspec.Raw(json.dumps(catalog).encode()))


def test_a_tool_keeps_its_deadline_and_says_that_it_becomes_a_task_by_itself() -> None:
    offer = offered(
        tools=[
            {"name": "a", "inputSchema": SCHEMA, "deadlineSeconds": 60},
            {"name": "b", "inputSchema": SCHEMA, "taskByHand": True},
            {"name": "c", "inputSchema": SCHEMA, "execution": {"taskSupport": "required"}},
        ]
    )
    assert offer.deadlines == {"a": 60}
    assert [tool.execution for tool in offer.tools] == [
        msgspec.UNSET,
        ToolExecution(task_support="optional", by_hand=True),
        ToolExecution(task_support="required"),
    ]
    assert b"deadline" not in msgspec.json.encode(offer.tools)


@pytest.mark.parametrize(
    ("catalog", "told"),
    [
        ({"tools": [{"name": "a b", "inputSchema": SCHEMA}]}, "'a b' is no tool name"),
        ({"tools": [{"name": "a", "inputSchema": {"type": "array"}}]}, "a: inputSchema"),
        ({"tools": [{"name": "a", "inputSchema": {"type": "object", "properties": 1}}]}, "a: inputSchema"),
        ({"tools": [{"name": "a", "inputSchema": SCHEMA}] * 2}, "the tool a twice"),
        ({"tools": [{"name": "a", "inputSchema": SCHEMA, "deadlineSeconds": 0}]}, "deadlineSeconds"),
        ({"tools": [{"name": "a", "inputSchema": SCHEMA, "deadlineSeconds": 1e9}]}, "deadlineSeconds"),
        ({"tools": [{"name": f"t{n}", "inputSchema": SCHEMA} for n in range(ENTRIES + 1)]}, "tools"),
        ({"resources": [{"uri": "", "name": "a"}]}, "a resource whose name is empty"),
        (
            {"resources": [{"uri": "x:" + "a" * 5000, "name": "a"}]},
            "a resource whose name is empty or longer",
        ),
        ({"resourceTemplates": [{"uriTemplate": "x:{a}", "name": "a"}] * 2}, "the template x:{a} twice"),
        ({"prompts": [{"name": "p"}, {"name": "p"}]}, "the prompt p twice"),
        ({"prompts": [{"name": 1}]}, "prompts[0].name"),
        ({"completes": [["prompt"]]}, "completes"),
        ({"prompts": [{"name": "p", "description": "x" * 5_000_000}]}, "KiB"),
        ({"tools": None}, "tools"),
    ],
)
def test_a_catalog_that_cannot_be_offered_says_what_of_it(catalog: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOffer) as raised:
        offered(**catalog)
    assert told in str(raised.value)
    assert len(str(raised.value)) < 600
