"""Tools under names that hosts refuse: the start, `doctor` and `check` name them, whichever agent they are of."""

from __future__ import annotations

import json
from pathlib import Path

from programs import SOURCE, Program


def test_whoever_starts_or_looks_at_the_server_is_told_which_names_hosts_refuse(home: Path) -> None:
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "scenarios": [{"respond": "done"}]}
        for name in ("look.up", "look_down")
    ]
    (home / "house.json").write_text(json.dumps({"name": "house", "tools": tools}), "utf-8")
    (home / "ostiary.toml").write_text(
        'auth = "none"\n[[server]]\n[[server.agent]]\nkind = "mock"\nfile = "house.json"\n', "utf-8"
    )
    program = Program(command=SOURCE, home=home)

    def told(*words: str, code: int) -> None:
        done = program.run(*words, code=code)
        said = " ".join((done.stdout + done.stderr).split())
        assert "look.up" in said and "Claude" in said and "separator" in said
        assert "look_down" not in said.partition("Claude")[2]

    told("doctor", "--data-dir", str(program.data_dir), code=1)  # without a server, and with one
    with program.serving() as server:
        server.await_words(r"tools\.refused_by_hosts.*look\.up|look\.up.*tools\.refused_by_hosts")
        told("doctor", "--data-dir", str(program.data_dir), code=1)
        told("doctor", server.endpoint, code=1)
        told("check", server.endpoint, code=0)
        (found,) = program.ask("check", server.endpoint)["servers"]
        assert found["refused_names"] == ["look.up"]
