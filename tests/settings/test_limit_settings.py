"""Limits as they are written: what is wrong with one is told with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.limits.rates import QUOTA_WORDS, RATE_WORDS
from server.settings.limits import LimitsConfig
from server.settings.reading import ConfigInvalid, LoadedSettings, load
from server.settings.resolve import resolve

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


@pytest.mark.parametrize(
    ("text", "server", "told"),
    [
        ('[limits]\naddress = "60"', "", f'limits.address: cannot be "60"; write {RATE_WORDS}'),
        ('[limits]\ncaller = "0/min"', "", f'limits.caller: cannot be "0/min"; write {RATE_WORDS}'),
        ('[limits]\nquota = "5/min"', "", f'limits.quota: cannot be "5/min"; write {QUOTA_WORDS}'),
        ("[limits]\ncalls_at_once = -1", "", "limits.calls_at_once: cannot be -1; write a number from 0"),
        ("[limits]\nper_ip = 5", "", "limits.per_ip: is not a setting"),
        ("", 'limits = { caller = "x" }', f'server[1].limits.caller: cannot be "x"; write {RATE_WORDS}'),
        (
            "",
            '[server.tools.echo]\nlimit = "often"',
            f'server[1].tools.echo.limit: cannot be "often"; write {RATE_WORDS}',
        ),
        (
            "",
            '[server.tools.echo]\nquota = "5"',
            f'server[1].tools.echo.quota: cannot be "5"; write {QUOTA_WORDS}',
        ),
    ],
)
def test_what_cannot_be_is_told_with_what_to_write(tmp_path: Path, text: str, server: str, told: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        loaded(tmp_path, text, server=server)
    (problem,) = caught.value.problems
    assert str(problem).startswith(told)
