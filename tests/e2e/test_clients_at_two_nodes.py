"""The official clients, doing all they can with two servers on one database, every request at the other one than that before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from nodes import Nodes
from taking_turns import TakingTurns
from test_official_clients import (
    LEGACY,
    MODERN,
    PEERS,
    check_both_eras,
    check_honored,
    check_legacy,
    node,
    python_sdk,
)

from tests.conformance.fixture_server import FIXTURES
from tests.free_ports import free_port
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SETTINGS = f"""
auth = "none"

[[server]]
name = "main"
title = "Conformance fixtures"

[[server.agent]]
kind = "python"
file = "{FIXTURES}"
python = "{sys.executable}"
"""


@pytest.fixture(scope="module")
def turns(shared_home: Path, postgres_server: PostgresServer) -> Iterator[TakingTurns]:
    ports = [free_port(), free_port()]
    with (
        postgres_server.database() as database,
        closing(TakingTurns(ports)) as balancer,
    ):
        made = Nodes(home=shared_home, database=database, settings=SETTINGS, port=balancer.port)
        with (
            made.serving("b", "--port", str(ports[0])) as one,
            made.serving("c", "--port", str(ports[1])) as other,
        ):
            one.server.await_words(rf'"boot":"{other.boot}"')
            balancer.start()
            yield balancer


@pytest.fixture
def target(turns: TakingTurns) -> Iterator[list[str]]:
    before = sum(turns.turns)
    yield [f"http://127.0.0.1:{turns.port}/mcp"]
    assert sum(turns.turns) > before + 20
    assert abs(turns.turns[0] - turns.turns[1]) <= 1


def test_the_python_sdk_does_everything_in_the_stateless_era(target: list[str], home: Path) -> None:
    found = python_sdk(home, "auto", target)
    check_both_eras(found, MODERN)
    assert found["heard"] == ["ResourceUpdated", "ToolsListChanged"]
    check_honored(found)
    assert found["task_text"] == "Computed 'task' in 0.3 s."


def test_the_python_sdk_does_everything_after_a_handshake(target: list[str], home: Path) -> None:
    found = python_sdk(home, "legacy", target)
    check_both_eras(found, LEGACY)
    check_legacy(found)


def test_the_first_typescript_sdk_does_everything_and_runs_tasks(target: list[str], home: Path) -> None:
    found = node(home, PEERS / "ts_v1_features.mjs", *target)
    check_both_eras(found, LEGACY)
    check_legacy(found)
    assert found["task"]["outcome"] == "Computed 'ts' in 0.2 s."
    assert found["asking_task"]["outcome"] == "notes.txt would be deleted."
    assert "input_required" in found["asking_task"]["steps"]
    assert found["task_cancelled"] == "cancelled"


@pytest.mark.parametrize(("mode", "revision"), [("auto", MODERN), ("legacy", LEGACY)])
def test_the_second_typescript_sdk_does_everything(
    target: list[str], home: Path, mode: str, revision: str
) -> None:
    found = node(home, PEERS / "ts_v2_features.mjs", mode, *target)
    if revision == MODERN:
        check_both_eras(found, revision)
        assert found["heard"] is True
    else:
        check_both_eras(found | {"unknown_resource": -32002}, revision)
        check_legacy(found)
