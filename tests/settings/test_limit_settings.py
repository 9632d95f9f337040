"""Limits as they are written, and what they are without a word."""

from __future__ import annotations

from pathlib import Path

from server.settings.limit_settings import LimitsConfig
from server.settings.resolved_settings import resolve
from server.settings.settings_reader import LoadedSettings, load

SERVER = '\n[[server]]\n{server}\n[[server.agent]]\nkind = "demo"\n'


def loaded(tmp_path: Path, text: str, *, server: str = "") -> LoadedSettings:
    file = tmp_path / "ostiary.toml"
    file.write_text(text + SERVER.format(server=server), "utf-8")
    return load(file, {})


def test_without_a_word_the_defaults_hold(tmp_path: Path) -> None:
    found = resolve(loaded(tmp_path, ""))
    assert found.limits == LimitsConfig()
    assert (found.limits.address, found.limits.caller, found.limits.calls_at_once) == (
        "600/min",
        "1200/min",
        256,
    )
    assert (found.limits.quota, found.limits.loopback) == ("", False)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    server = 'limits = { caller = "10/s, 5 at once", quota = "" }\n[server.tools.echo]\nlimit = "60/min"\nquota = "9/day"'
    found = loaded(tmp_path, '[limits]\naddress = ""\nquota = "100/day"\nloopback = true', server=server)
    assert (found.limits.address, found.limits.quota, found.limits.loopback) == ("", "100/day", True)
    own = found.servers[0].limits
    assert (own.caller, own.quota, own.address, own.calls_at_once) == ("10/s, 5 at once", "", None, None)
    tool = found.servers[0].tools["echo"]
    assert (tool.limit, tool.quota) == ("60/min", "9/day")
