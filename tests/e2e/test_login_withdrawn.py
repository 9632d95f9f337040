"""Ctrl-C in `ostiary login`: nobody is asked any more to approve what nobody waits for."""

from __future__ import annotations

import signal

import pytest
from programs import USER_CODE, Program

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_login_that_is_stopped_takes_its_request_back(program: Program, number: int) -> None:
    with program.serving() as server:
        with program.starting("login", server.endpoint) as other:
            other.await_words(USER_CODE)
            with program.starting("login", server.endpoint) as login:
                user_code = login.await_words(USER_CODE)[0]
                assert len(program.at_machine("pending")) == 2
                login.end(number)
            (left,) = program.at_machine("pending")
            assert left
            refused = program.run("approve", user_code, "--yes", "--data-dir", str(program.data_dir), code=1)
            assert "withdrawn" in refused.stderr
            other.end(signal.SIGKILL)
        # Whoever is killed can say nothing.
        assert len(program.at_machine("pending")) == 1
