"""The pieces of Hypercorn under server/transport/http/listen.py are the ones that were read when it was written.

When this fails after an upgrade: read the changed piece, read how it is used, then write the new digest here.
"""

from __future__ import annotations

import hashlib
import inspect
from importlib.metadata import version
from typing import Any

import pytest
from hypercorn.config import Config

PIECES: dict[str, tuple[Any, str]] = {
    "Config.create_sockets": (Config.create_sockets, "3ba0bab3918e4238"),
    "Config._create_sockets": (Config._create_sockets, "f9db20c33480ad65"),
    "Config.bind": (Config.bind.fset, "3e06474e76b4e984"),
    "Config.log": (Config.log.fget, "23b378cc32953e34"),
}


@pytest.mark.parametrize(("piece", "digest"), PIECES.values(), ids=list(PIECES))
def test_a_piece_that_is_relied_on_has_not_changed_upstream(piece: Any, digest: str) -> None:
    assert hashlib.sha256(inspect.getsource(piece).encode()).hexdigest()[:16] == digest


def test_the_version_is_the_one_that_was_read() -> None:
    assert version("hypercorn") == "0.18.0"
