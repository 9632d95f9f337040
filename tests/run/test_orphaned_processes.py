"""What is left of programs when a server stops; that it is held to by whole programs is tests/e2e/test_programs_kept_out.py's."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to whom it is told")

# In a process of its own: whatever else is a child of the tests would be ended too.
SCRIPT = """
import os, signal, subprocess, sys
from server.run.orphaned_processes import programs_ended

def stubborn_orphan():
    program = "import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid()\\n"
    program += "if os.fork(): os._exit(0)\\n"
    program += "print(os.getpid(), flush=True); os.close(1); signal.pause()"
    return int(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)

def lives(pid):
    return os.path.exists(f"/proc/{pid}")

earlier = subprocess.Popen(["sleep", "600"])
with programs_ended():
    plain = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    orphan = stubborn_orphan()
    assert lives(plain) and lives(orphan)
print(lives(plain), lives(orphan), lives(earlier.pid))
earlier.kill()
"""


def test_what_was_started_is_ended_with_its_orphans_and_what_was_there_before_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "False False True\n"
