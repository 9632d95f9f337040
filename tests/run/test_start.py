"""What a server loads before its first request: what it does not need then, it does not carry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What each costs at a start is milliseconds and up to megabytes; all of them come with the first request that needs them.
LATER = (
    "asyncio",
    "auth.pages.page_admission",
    "authlib",
    "difflib",
    "fido2",
    "html",
    "http.client",
    "importlib.resources",
    "jinja2",
    "multiprocessing",
    "quart",
    "segno",
    "server.certificates",
    "server.admin.command_table",
    "server.lib.evm",
    "server.lib.tracing",
    "server.transport.http.issued_tls",
    "server.transport.http.redirecting",
    "server.payments.buyer",
    "server.run.node_message_loop",
    "server.calls.request_spans",
    "server.cluster.postgres.postgres",
    "server.telemetry",
    "zipfile",
)


@pytest.mark.parametrize("name", ["server.run.app", "server.run.app_stdio"])
def test_what_belongs_to_a_first_request_is_not_loaded_at_the_start(name: str) -> None:
    script = (
        "import sys\n"
        "import server.cli.this_program.serve, server.lib.log.structured_log, server.settings.settings_reader, server.settings.resolved_settings\n"
        f"import {name}\n"
        f"print([name for name in {LATER!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    "settings", ["", '[[server]]\n[[server.agent]]\nkind = "python"\nfile = "agent.py"\n']
)
@pytest.mark.parametrize("command", ["sessions", "status", "approve ABCD-EFGH --yes", "revoke lgn_1"])
def test_a_command_at_the_machine_starts_without_event_loop_and_client(
    command: str, settings: str, tmp_path: Path
) -> None:
    """They are the most part of its time, and it asks over a socket."""
    (tmp_path / "ostiary.toml").write_text(settings)
    script = (
        "import sys\n"
        "from server.cli import run\n"
        "code = run([*sys.argv[1:]])\n"
        "print(code, [name for name in ('trio', 'server.client.http_exchange', 'cryptography') if name in sys.modules], file=sys.stderr)\n"
    )
    where = ["--config", str(tmp_path / "ostiary.toml"), "--data-dir", str(tmp_path / "none")]
    done = subprocess.run(
        [sys.executable, "-c", script, *command.split(), *where],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "1 []", done.stderr
