"""What is kept of a server's tools, and what is told of those that are not as they were."""

from __future__ import annotations

from typing import Any

import pytest

from server.client.checks.offer_snapshot import BadSnapshot, definitions, drifts, read, write

ONE: dict[str, Any] = {
    "name": "one",
    "description": "First.",
    "inputSchema": {"type": "object", "properties": {}},
}
TWO: dict[str, Any] = {"name": "two", "inputSchema": {"type": "object"}, "_meta": {"seen": 1}}


def changes(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[tuple[str, str]]:
    kept = read(write({"main": definitions(before)}))
    return [(each.tool, each.change) for each in drifts(kept.servers, {"main": definitions(now)})]


def test_what_is_kept_is_the_same_bytes_in_any_order() -> None:
    turned = {key: ONE[key] for key in reversed(ONE)}
    assert write({"main": definitions([ONE, TWO])}) == write({"main": definitions([TWO, turned])})
    assert changes([ONE, TWO], [TWO, turned]) == []


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ([ONE], [ONE, TWO], [("two", "added")]),
        ([ONE, TWO], [TWO], [("one", "removed")]),
        ([ONE], [{**ONE, "description": "Another."}], [("one", "changed")]),
        ([ONE], [{**ONE, "annotations": {"readOnlyHint": True}}], [("one", "changed")]),
        ([ONE], [{**ONE, "outputSchema": {"type": "object"}}], [("one", "changed")]),
        ([ONE], [{**ONE, "_meta": {"io.ostiary/price": "$1"}}], []),
        ([], [], []),
    ],
)
def test_tools_that_are_not_as_they_were_are_told(
    before: list[dict[str, Any]], now: list[dict[str, Any]], found: list[tuple[str, str]]
) -> None:
    assert changes(before, now) == found


def test_one_server_is_compared_under_whatever_name_and_several_by_theirs() -> None:
    here, there = {"main": definitions([ONE])}, {"https://agent.example.org/mcp": definitions([ONE])}
    assert drifts(here, there) == []
    several = {"a": definitions([ONE]), "b": definitions([TWO])}
    found = drifts(several, {"b": definitions([TWO]), "c": definitions([ONE])})
    assert [(each.server, each.tool, each.change) for each in found] == [
        ("a", "one", "removed"),
        ("c", "one", "added"),
    ]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"servers": {"a": 1}}', b'{"version": 2, "servers": {}}', b"\xff"]
)
def test_a_file_that_is_none_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(BadSnapshot):
        read(data)
