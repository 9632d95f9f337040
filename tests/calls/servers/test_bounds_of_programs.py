from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server.calls.servers import program_bounds
from server.calls.servers.program_bounds import user_of
from server.lib.other_user import OtherUser
from server.settings.program_rights import ProgramRights


def test_what_the_executable_unpacks_to_run_agents_is_shown_to_the_user_that_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = tmp_path / "_MEI1"
    shim = unpacked / "server" / "agents" / "shim"
    (shim / "ostiary").mkdir(parents=True)
    other = unpacked / "other"
    for file in (shim / "run.py", shim / "ostiary" / "work.py", other):
        file.touch(0o600)
    for folder in (unpacked, unpacked / "server", shim, shim / "ostiary"):
        folder.chmod(0o700)
    user = OtherUser("bob", 1001, 1001, (1001,), "")
    monkeypatch.setattr(program_bounds, "SHIM", shim)
    monkeypatch.setattr(program_bounds, "find_user", lambda _: user)
    monkeypatch.setattr(program_bounds, "missing_rights", lambda: "")
    monkeypatch.setattr(sys, "_MEIPASS", str(unpacked), raising=False)
    assert user_of(ProgramRights()) is None
    assert not shim.stat().st_mode & 0o077
    assert user_of(ProgramRights(run_as="bob")) == user
    assert unpacked.stat().st_mode & 0o777 == shim.stat().st_mode & 0o777 == 0o755
    assert (shim / "ostiary" / "work.py").stat().st_mode & 0o777 == 0o644
    assert not other.stat().st_mode & 0o077
    assert not tmp_path.stat().st_mode & 0o022
