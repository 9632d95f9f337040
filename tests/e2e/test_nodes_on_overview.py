"""Whoever owns two nodes sees both of them in the Overview and in `status`: their versions and workers, and one that falls silent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest
from nodes import Nodes, ServedNode
from person import Person
from programs import SOURCE, Program, until

from server import __version__
from server.store.node_rows import ALIVE_MILLIS

pytestmark = pytest.mark.slow


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def seen_at(node: ServedNode) -> list[dict[str, Any]]:
    return node.program.at_machine("status")["server"]["nodes"]


def when(look: Callable[[], list[dict[str, Any]]], *standings: str) -> list[dict[str, Any]]:
    """Once they stand like this, the oldest first and silent ones last."""

    def found() -> list[dict[str, Any]] | None:
        nodes = look()
        return nodes if tuple(each["standing"] for each in nodes) == standings else None

    return until(f"them to be {standings}", found)


def overview(person: Person, url: str) -> str:
    words = _Words()
    words.feed(person.browser.get(f"{url}/account").text)
    return " ".join(" ".join(words.found).split())


def test_both_are_shown_and_one_that_is_killed_is_named_until_it_is_back(
    home: Path, postgres_database: dict[str, str]
) -> None:
    nodes = Nodes(home=home, database=postgres_database)
    machine = os.uname().nodename
    person = Person()
    with closing(person), nodes.serving("b") as b:
        with nodes.serving("a") as a:
            first, second = when(lambda: seen_at(b), "ready", "ready")
            assert (first["here"], second["here"]) == (True, False)
            assert [first["machine"], second["machine"], *first["versions"]] == [
                machine,
                machine,
                __version__,
            ]
            assert [each["worker"] for each in first["processes"]] == [0]
            person.claim(a.program, a.server)
            a.server.process.send_signal(signal.SIGKILL)
            a.server.wait()
        silent = when(lambda: seen_at(b), "ready", "silent")[1]
        assert silent["address"] == a.url.removeprefix("http://")
        until("it to be found dead", lambda: '"event":"node.gone"' in b.server.said() or None)
        silent = when(lambda: seen_at(b), "ready", "silent")[1]
        assert silent["quiet_ms"] >= ALIVE_MILLIS
        page = overview(person, b.url)
        assert f"The node {machine} has been silent for " in page
        assert "Look on its machine" in page
        told = b.program.run("status", "--data-dir", str(b.program.data_dir))
        assert "1 of 2 ready" in told.stdout
        assert "hint: look on the silent node's machine" in told.stderr
        with nodes.serving("a"):
            when(lambda: seen_at(b), "ready", "ready")


def test_a_worker_that_was_started_again_is_told_of_where_its_node_is(
    home: Path, postgres_database: dict[str, str]
) -> None:
    where = postgres_database
    (home / "address").write_text(
        f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}\n", "utf-8"
    )
    (home / "ostiary.toml").write_text('store = "file:address"\nworkers = 2\n', "utf-8")
    program, person = Program(command=SOURCE, home=home), Person()
    with closing(person), program.serving() as server:
        server.await_words(r'"event":"server.started"')
        person.claim(program, server)
        workers = program.at_machine("status")["server"]["workers"]
        os.kill(workers[1]["pid"], signal.SIGKILL)
        note = "Worker 2 was started again 1 time, last after signal SIGKILL"

        def told() -> bool | None:
            try:
                page = overview(person, server.url)
            except httpx2.TransportError:  # its connection was with the worker that was killed
                return None
            return (note in page and "2 workers" in page and "this one" in page) or None

        until("it to be there again", told)
        (node,) = program.at_machine("status")["server"]["nodes"]
        assert (node["standing"], [each["worker"] for each in node["processes"]]) == ("ready", [1, 2])
