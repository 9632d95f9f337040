"""OpenTelemetry's own reader of OTLP, as a collector that writes down what it was given (tests/peers/otlp)."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from programs import ROOT, needed, until

HOME = ROOT / ".work" / "peers" / "otlp"


class Collector:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[dict[str, Any]] = []
        assert process.stdout is not None
        self.url: str = json.loads(process.stdout.readline())["listens"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def join(self) -> None:
        """After its program has ended."""
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.append(json.loads(line))

    @property
    def said(self) -> list[dict[str, Any]]:
        found = list(self._lines)
        assert not [each for each in found if "problem" in each], found
        return found

    def spans(self) -> list[dict[str, Any]]:
        return [each for each in self.said if "span" in each]

    def points(self, metric: str) -> list[dict[str, Any]]:
        return [each for each in self.said if each.get("metric") == metric]

    def await_span(self, what: str, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return until(what, lambda: next((each for each in self.spans() if fits(each)), None))


@contextmanager
def collecting(port: int = 0) -> Generator[Collector]:
    program = needed(HOME / "otlp", "scripts/peers collector")
    process = subprocess.Popen([program, f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True)
    collector = Collector(process)
    try:
        yield collector
    finally:
        process.kill()
        process.wait()
        collector.join()
