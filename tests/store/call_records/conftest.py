from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from records_fakes import NOW

from server.store.inline_store import InlineStore, open_inline_store


@pytest.fixture
async def store() -> AsyncGenerator[InlineStore]:
    async with open_inline_store(clock=lambda: NOW) as opened:
        yield opened
