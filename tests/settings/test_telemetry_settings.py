"""`[telemetry]`: what can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.settings.written import settled


@pytest.mark.parametrize(
    "text",
    [
        'otlp = "http://127.0.0.1:4318"',
        'otlp = "https://collector.example.org/tenant"\nca_file = "ca.pem"\nheaders = { x-key = "env:KEY" }',
        'otlp = "http://[::1]:4318"\ntraces = 0\nmetrics_seconds = 0\nservice = "desk"\ninstance = "a"\nfollow = false',
    ],
)
def test_what_can_be_meant(tmp_path: Path, text: str) -> None:
    assert settled(tmp_path, f"[telemetry]\n{text}\n").telemetry is not None
