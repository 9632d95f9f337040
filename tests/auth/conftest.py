"""Fixtures for the tests of identity."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.auth.identity_fakes import World


@pytest.fixture
def world() -> Iterator[World]:
    """A set-up store and the moves of a login."""
    world = World()
    yield world
    world.close()
