"""`[telemetry]`: what can be written, and what is said of what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.settings.reading import ConfigInvalid, load
from server.settings.resolve import resolve


def read(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "ostiary.toml"
    file.write_text(f"[telemetry]\n{text}\n")
    try:
        resolve(load(file, {}))
    except ConfigInvalid as problem:
        return [str(each) for each in problem.problems]
    return []


@pytest.mark.parametrize(
    "text",
    [
        'otlp = "http://127.0.0.1:4318"',
        'otlp = "https://collector.example.org/tenant"\nca_file = "ca.pem"\nheaders = { x-key = "env:KEY" }',
        'otlp = "http://[::1]:4318"\ntraces = 0\nmetrics_seconds = 0\nservice = "desk"\ninstance = "a"\nfollow = false',
    ],
)
def test_what_can_be_meant(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("traces = 0.5", "otlp"),
        ('otlp = "127.0.0.1:4318"', "must begin with http:// or https://"),
        ('otlp = "http://x:1?key=s3cret"', "has a query"),
        ('otlp = "http://user:s3cret@x:1"', "must not hold credentials"),
        ('otlp = "http://x:1"\nca_file = "ca.pem"', "is of no use without https"),
        ('otlp = "http://x:1"\nheaders = { host = "env:KEY" }', "is set by the server itself"),
        ('otlp = "http://x:1"\nheaders = { "a b" = "env:KEY" }', "is not a header name"),
        ('otlp = "http://x:1"\ntraces = 1.5', "from 0 to 1"),
        ('otlp = "http://x:1"\nmetrics_seconds = 2', "is too often"),
        ('otlp = "http://x:1"\nsample = 2', "is not a setting"),
    ],
)
def test_what_cannot_is_told_with_what_to_write_instead(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = read(tmp_path, text)
    assert problem.startswith("telemetry") and told in problem and "s3cret" not in problem
