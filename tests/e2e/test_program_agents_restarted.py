"""Tasks of agents that are programs, with a question in the middle, when the server is stopped or killed while they run."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from programs import until
from task_clients import Ended, Extension, House, Wasmagent, make_house

from server.calls.tasks import sealed_tasks

pytestmark = pytest.mark.slow

RESTARTED = sealed_tasks.RESTARTED.message
TOOLS = ("asks", "asks_and_ends", "steps", "sleeps")
AGENT = """
    import json, pathlib, sys, time

    def say(event, **fields): print(json.dumps({"event": event, **fields}), flush=True)
    def hear(): return json.loads(sys.stdin.readline())
    def note(text):
        with open("notes/said", "a") as said: said.write(text + "\\n")

    call = hear()
    name, tool, answers = call["arguments"]["name"], call["tool"], call.get("answers", {})
    note(f"{name} begins")
    if tool == "sleeps":
        say("progress", message="asleep")
        time.sleep(1000)
    elif tool == "steps":
        first = call.get("resumed", 0)
        for step in range(first, 3):
            note(f"{name} step {step}")
            say("checkpoint", data=step + 1, id="kept")
            hear()
            note(f"{name} kept step {step}")
            while not pathlib.Path(f"notes/{name}.go").exists():
                time.sleep(0.02)
        say("final", result=f"{name} began at {first}")
    else:
        say("progress", message="thinking")
        if "colour" not in answers:
            say("ask", id="colour", prompt="Which colour?", schema={"colour": "string"})
            if tool == "asks_and_ends":
                sys.exit()
            answers["colour"] = hear()
        say("final", result=f"{name}: {answers['colour']['content']['colour']}")
"""


def write(home: Path) -> House:
    house = make_house(home)
    (home / "agent_program.py").write_text(dedent(AGENT))
    tools = "".join(
        f'[[server.agent.tool]]\nname = "{tool}"\ninput = {{ name = "string" }}\ntask = "optional"\n'
        for tool in TOOLS
    )
    agent = f'[[server.agent]]\nkind = "agent"\nrun = ["{sys.executable}", "agent_program.py"]\n{tools}'
    wasm = '[[server]]\nname = "wasm"\ncompat = { tasks = "wasmagent", sync_timeout_seconds = 0.3 }\n'
    (home / "ostiary.toml").write_text(f'[[server]]\nname = "main"\n{agent}{wasm}{agent}')
    return house


@pytest.mark.parametrize(
    ("kind", "number"),
    [("extension", signal.SIGTERM), ("extension", signal.SIGKILL), ("wasmagent", signal.SIGKILL)],
)
def test_what_waits_or_has_a_checkpoint_goes_on_and_what_has_none_says_so(
    home: Path, kind: str, number: int
) -> None:
    house = write(home)
    try:
        with house.open() as server:
            face = house.face(kind)
            begun = {tool: face.begin(tool, tool) for tool in TOOLS}
            house.await_note("steps kept step 0")
            for tool in ("asks", "asks_and_ends"):
                until("a question", lambda: face.look(begun[tool]).state == "input_required" or None)  # noqa: B023
            until("progress", lambda: face.look(begun["sleeps"]).message)
            house.hang_up()
            server.end(number)
        with house.open():
            face = house.face(kind)
            assert isinstance(face, Extension | Wasmagent)
            for tool in ("asks", "asks_and_ends"):
                face.answer(begun[tool], {"colour": {"colour": "blue"}})
                assert face.end(begun[tool]) == Ended("completed", f"{tool}: blue")
            house.let_go("steps")
            assert face.end(begun["steps"]) == Ended("completed", "steps began at 1")
            assert face.end(begun["sleeps"])[:2] == ("failed", RESTARTED)
        said = house.said()
        assert [said.count(f"steps step {step}") for step in range(3)] == [1, 1, 1]
        assert said.count("sleeps begins") == 1
    finally:
        house.hang_up()
