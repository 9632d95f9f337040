"""The official suite's `authorization` mode: it looks at an authorization server alone, and waits for a person with a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from person import Person
from programs import NODE_BIN, Background, House, needed

from tests.free_ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SUITE = NODE_BIN.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
SCENARIOS = 2


@pytest.fixture(scope="module")
def owner(house: House) -> Iterator[Person]:
    with closing(Person()) as person:
        person.claim(house.program, house.server)
        yield person


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_suite_has_nothing_against_the_authorization_server(
    house: House, owner: Person, revision: str
) -> None:
    program, server = house.program, house.server
    port = free_port()
    client = program.at_machine(
        "clients", "add", f"conformance {revision}", "--grant", "authorization_code",
        "--redirect-uri", f"http://127.0.0.1:{port}/callback",
    )  # fmt: skip
    results = program.home / f"results-{revision}"
    command = (
        str(needed(NODE_BIN / "node", "scripts/peers")), str(needed(SUITE, "scripts/peers")), "authorization",
        "--url", server.url, "--client-id", client["id"], "--resource", server.endpoint,
        "-p", str(port), "-o", str(results), "--spec-version", revision,
    )  # fmt: skip
    with program.starting(command=command) as suite:
        owner.allow(address_in(suite))
        assert suite.wait() == 0, suite.said()
    checks = [check for each in sorted(results.rglob("checks.json")) for check in read(each)]
    assert len(list(results.rglob("checks.json"))) == SCENARIOS
    assert [check for check in checks if check["status"] in ("FAILURE", "WARNING")] == []
    assert [check["status"] for check in checks].count("SUCCESS") >= SCENARIOS


def address_in(suite: Background) -> str:
    return suite.await_words(re.compile(r"https?://\S+/authorize\?\S+"))[0]


def read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text("utf-8"))
