"""A test that takes `cell` runs in each era and on each wire that the requirements claim which it names."""

from __future__ import annotations

import pytest

from tests.requirements import claimed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" not in metafunc.fixturenames:
        return
    cells = {
        cell: None
        for marker in metafunc.definition.iter_markers("requirement")
        for cell in claimed(marker.args[0], **marker.kwargs)
    }
    metafunc.parametrize("cell", sorted(cells), ids=lambda cell: f"{cell.era}-{cell.transport}")
