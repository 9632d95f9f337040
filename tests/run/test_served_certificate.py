"""server/run/served_certificate.py: the certificate of two files, read again when they change; what is said where there is none yet."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from structlog.testing import CapturingLogger

from server.calls.servers.server_opening import CannotStart
from server.run.served_certificate import LOOK_SECONDS, FileCertificate, of_an_authority, of_files, waits_for
from server.settings.resolved_settings import Resolved, resolve
from server.settings.settings_reader import load
from server.transport.http.server_tls import Tls
from tests.made_certificates import write_certificate

NAME = "agent.example.org"


def logging() -> tuple[Any, CapturingLogger]:
    sink = CapturingLogger()
    wrapper = structlog.make_filtering_bound_logger(0)
    return structlog.wrap_logger(sink, processors=[], wrapper_class=wrapper, context_class=dict), sink


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps does not wait for threads."""

    async def here(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", here)


@asynccontextmanager
async def watched(tmp_path: Path) -> AsyncGenerator[tuple[FileCertificate, list[str]]]:
    log, sink = logging()
    certificate = FileCertificate(Tls(*write_certificate(tmp_path, "one")), log)
    events: list[str] = []
    sink.calls = EventList(events)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(certificate.run)
        await trio.sleep(LOOK_SECONDS * 2.5)
        yield certificate, events
        nursery.cancel_scope.cancel()


class EventList(list[Any]):
    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events = events

    def append(self, call: Any) -> None:
        self._events.append(call.kwargs["event"])


async def test_files_that_change_are_read_again_within_seconds_and_no_sooner_than_both_are_there(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, in_place: None
) -> None:
    async with watched(tmp_path) as (certificate, events):
        assert events == []
        first = certificate.tls.context
        write_certificate(tmp_path, "two")
        await trio.sleep(LOOK_SECONDS * 2.5)
        assert events == ["tls.reloaded"]
        assert certificate.tls.context is not first
        assert certificate.described()["serving"]["names"] == ["localhost"]
        await trio.sleep(LOOK_SECONDS * 20)
        assert events == ["tls.reloaded"], "files that stay as they are are left alone"


async def test_a_bad_file_keeps_what_is_served_and_is_told_of_until_it_is_put_right(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, in_place: None
) -> None:
    async with watched(tmp_path) as (certificate, events):
        first = certificate.tls.context
        (tmp_path / "key.pem").write_text("junk", "ascii")
        await trio.sleep(LOOK_SECONDS * 20)
        assert events == ["tls.not_reloaded"], "once"
        assert certificate.tls.context is first
        assert "certificate and its key" in certificate.note()
        assert "of before is served" in certificate.note()
        assert certificate.described()["problem"]
        os.unlink(tmp_path / "cert.pem")
        await trio.sleep(LOOK_SECONDS * 3)
        assert "No such file" in certificate.note()
        write_certificate(tmp_path, "three")
        await trio.sleep(LOOK_SECONDS * 3)
        assert events[-1] == "tls.reloaded"
        assert "ends in" in certificate.note(), "it is one of an hour"
        assert certificate.tls.context is not first


def resolved(tmp_path: Path, **flags: str) -> Resolved:
    return resolve(load(None, {}, {"data_dir": str(tmp_path / "data"), **flags}))


async def test_without_a_domain_nothing_of_it_is_there(tmp_path: Path) -> None:
    log, _ = logging()
    assert of_files(resolved(tmp_path), log) is None
    assert await of_an_authority(resolved(tmp_path), tmp_path, log) is None
    assert waits_for(None) is None
    assert not (tmp_path / "acme").exists()


async def test_where_there_is_none_yet_the_start_says_from_whom_it_comes(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    log, _ = logging()
    certificate = await of_an_authority(resolved(tmp_path, domain=NAME, accept_terms="true"), tmp_path, log)
    assert waits_for(certificate) == (
        "waiting for one from acme-v02.api.letsencrypt.org; https answers once it is here"
    )
    (tmp_path / "acme" / "certificate.pem").write_text("junk", "ascii")
    (tmp_path / "acme" / "certificate.pem").chmod(0o600)
    with pytest.raises(CannotStart, match=r"certificate\.pem holds no certificate") as refused:
        await of_an_authority(resolved(tmp_path, domain=NAME, accept_terms="true"), tmp_path, log)
    assert "move it away" in refused.value.hint
