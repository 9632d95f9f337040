"""What two pages say of a running server: the chat agent of docs/agents.md is served as it stands, and docs/metrics.md knows every number of it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from pages import DocumentPage
from programs import ROOT, SOURCE, WAIT_SECONDS, Program

from tests.free_ports import free_port

pytestmark = pytest.mark.slow

SETTINGS = """
auth = "none"
admin_port = {admin}

[[server]]
[[server.agent]]
kind = "chat"
url = "http://127.0.0.1:{chat}/api/chat"
"""


@contextmanager
def chat_agent(port: int) -> Generator[None]:
    (program,) = (text for text in DocumentPage("agents.md").of("python") if "do_POST" in text)
    listening = 'HTTPServer(("127.0.0.1", 3000), Chat).serve_forever()'
    assert listening in program
    # It says when it listens; else it is as it is shown.
    begun = f'server = HTTPServer(("127.0.0.1", {port}), Chat)\nprint("listening", flush=True)\nserver.serve_forever()'
    code = program.replace(listening, begun)
    with subprocess.Popen(
        (sys.executable, "-c", code), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as agent:
        try:
            assert agent.stdout is not None
            watch = threading.Timer(WAIT_SECONDS, agent.kill)
            watch.start()
            assert agent.stdout.readline() == b"listening\n"
            watch.cancel()
            yield
        finally:
            agent.kill()


def test_the_chat_agent_of_the_page_answers_and_every_metric_is_explained(home: Path) -> None:
    chat, admin = free_port(), free_port()
    (home / "ostiary.toml").write_text(SETTINGS.format(chat=chat, admin=admin), "utf-8")
    program = Program(command=SOURCE, home=home)
    with ExitStack() as stack:
        stack.enter_context(chat_agent(chat))
        server = stack.enter_context(program.serving("--config", str(home / "ostiary.toml")))
        said = program.run("call", server.endpoint, "chat_with_agent", "message=hello", "agent_id=any").stdout
        assert "You said: hello" in said
        counted = httpx2.get(f"http://127.0.0.1:{admin}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
    told = set(re.findall(r"^\| `(\w+)", (ROOT / "docs/metrics.md").read_text("utf-8"), re.MULTILINE))
    families = set(re.findall(r"^# TYPE (\w+)", counted, re.MULTILINE))
    assert len(families) > 25
    assert families - told == set()
    # Those that are missing here are of TLS, money, a collector and several processes, of which this server has none.
    elsewhere = re.compile("certificate|payments|charges|facilitator|telemetry|worker|letters")
    assert {name for name in told - families if not elsewhere.search(name)} == set()
    # And a label of the page is one of the sample.
    assert re.search(
        r'^ostiary_tool_calls_total\{outcome="ok",server="main",tool="chat_with_agent"\} 1\.0$',
        counted,
        re.MULTILINE,
    )
