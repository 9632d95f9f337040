"""The tables that stand in for chains of ifs: nothing is missing from them, and nothing in them is out of line."""

from __future__ import annotations

import pytest

from server.mcp import errors
from server.mcp.errors import WIRE, McpError
from server.mcp.method_table import METHODS
from server.mcp.versions import LATEST_LEGACY, MODERN_VERSIONS, REVISIONS, Era, negotiate


def every(error: type[McpError]) -> set[type[McpError]]:
    return {error}.union(*(every(child) for child in error.__subclasses__()))


def test_every_error_has_its_row_and_every_row_its_error() -> None:
    ours = {error for error in every(McpError) if error.__module__ == errors.__name__}
    assert ours - {McpError} == set(WIRE)


def test_codes_lie_in_the_ranges_that_a_server_may_use() -> None:
    reserved = {-32700, *range(-32603, -32599)}
    mcp = {-32020, -32021, -32022}
    # The dialect of `compat.tasks`, which is spoken in the handshake era only.
    wasmagent = {-32010, -32011, -32012}
    for error, row in WIRE.items():
        own = wasmagent if error.__name__.startswith("Wasm") else set[int]()
        assert row.code in reserved | mcp | own or not -32768 <= row.code <= -32000


@pytest.mark.requirement("legacy.echo")
@pytest.mark.parametrize("requested", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_version_with_a_handshake_is_echoed(requested: str) -> None:
    assert negotiate(requested).version == requested


@pytest.mark.requirement("legacy.counter")
@pytest.mark.parametrize("requested", [None, "", "2026-07-28", "2099-01-01", "x"])
def test_any_other_version_is_countered_with_the_latest_that_has_a_handshake(requested: str | None) -> None:
    assert negotiate(requested) is LATEST_LEGACY


def test_revisions_only_ever_gain_features_but_for_batches() -> None:
    rows = list(REVISIONS.values())
    assert [row.version for row in rows] == sorted(row.version for row in rows)
    for feature in ("annotations", "structured", "icons", "any_structured", "completions", "elicits"):
        having = [getattr(row, feature) for row in rows]
        assert having == sorted(having)
    assert [row.version for row in rows if row.batches] == ["2025-03-26"]
    assert set(MODERN_VERSIONS) == {row.version for row in rows if row.era is Era.MODERN}


def test_a_method_is_named_once_and_belongs_to_an_era() -> None:
    for name, row in METHODS.items():
        assert row.name == name == row.wire.decode()
        assert row.eras
        if row.named_by is not None:
            assert row.named_by in row.params.__struct_fields__
