"""A plugin of pytest: writes down which test has begun and which failed, where a run may be killed at any moment."""

from __future__ import annotations

import os

import pytest


def _write(what: str, test: str) -> None:
    with open(os.environ["MUTANT_WATCH"], "a", encoding="utf-8") as file:
        file.write(f"{what} {test}\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("began", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _write("failed", report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write("failed", report.nodeid)
