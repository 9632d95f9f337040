from __future__ import annotations

import json

import pytest
from shell import Done, Terminal

from server import __version__
from server.cli import run
from tests.client.fake_server import FakeServer, Response, Seen


def offering(fake: FakeServer, body: object, *, status: int = 200) -> None:
    async def answer(request: Seen) -> Response:
        return Response(status=status, body=body if isinstance(body, bytes) else json.dumps(body).encode())

    fake.overrides["/latest.json"] = answer


async def check(shell: Terminal, fake: FakeServer, *more: str) -> Done:
    return await shell.run("upgrade", "--check", *more, OSTIARY_RELEASES=f"{fake.origin}/latest.json")


async def test_a_newer_release_is_told_with_where_to_get_it_and_how(
    shell: Terminal, fake: FakeServer
) -> None:
    offering(fake, {"version": "99.1", "page": "https://example.org/ostiary/", "later": ["fields"]})
    done = await check(shell, fake)
    assert done.code == 0
    assert done.stdout == f"99.1 is out; this is {__version__}\nhttps://example.org/ostiary/\n"
    assert "git pull" in done.stderr
    told = await check(shell, fake, "--json")
    assert json.loads(told.stdout) == {
        "version": __version__,
        "latest": "99.1",
        "newer": True,
        "page": "https://example.org/ostiary/",
    }
    # It asked for that one document, and sent nothing of anybody's.
    assert {request.path for request in fake.seen} == {"/latest.json"}
    assert not any("authorization" in {name.lower() for name in request.headers} for request in fake.seen)


@pytest.mark.parametrize("version", [__version__, f"{__version__}.0", "0.0.9", "0.1.0rc1"])
async def test_the_newest_is_told_to_be(version: str, shell: Terminal, fake: FakeServer) -> None:
    offering(fake, {"version": version})
    done = await check(shell, fake)
    assert (done.code, done.stdout, done.stderr) == (0, f"{__version__} is the newest\n", "")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"version": "latest"}, 200, "release that is no version"),
        ({"version": "1" * 40}, 200, "release that is no version"),
        ({"versions": ["1.0"]}, 200, "something that names no release"),
        (b"<html>", 200, "something that names no release"),
        (b"[" * 50_000, 200, "something that names no release"),
        ({"version": "9.9", "padding": "x" * 70_000}, 200, "more than 64 KiB"),
        ({"version": "9.9"}, 404, "answered 404"),
        ({"version": "9.9"}, 302, "answered 302"),
    ],
    ids=["a word", "digits", "other fields", "html", "deep", "long", "missing", "elsewhere"],
)
async def test_what_is_no_release_is_refused_in_words(
    body: object, status: int, said: str, shell: Terminal, fake: FakeServer
) -> None:
    offering(fake, body, status=status)
    done = await check(shell, fake)
    assert done.code == 1
    assert said in done.stderr
    assert done.stdout == ""


async def test_a_page_that_nobody_should_open_is_not_shown(shell: Terminal, fake: FakeServer) -> None:
    offering(fake, {"version": "99.1", "page": "javascript:alert(1)"})
    done = await check(shell, fake)
    assert done.stdout == f"99.1 is out; this is {__version__}\n"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://example.org/latest.json", "must begin with https://"),
        ("https://me:secret@example.org/latest.json", "must not hold credentials"),
        ("ftp://example.org/", "must begin with https://"),
        ("nowhere", "is not an address"),
    ],
)
def test_an_address_that_cannot_be_trusted_is_not_asked(
    address: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OSTIARY_RELEASES", address)
    assert run(["upgrade", "--check"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "secret" not in told


def test_without_an_address_nobody_is_asked_and_how_to_update_is_said_anyway(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OSTIARY_RELEASES", raising=False)
    assert run(["upgrade", "--check"]) == 1
    assert "releases = " in capsys.readouterr().err
    assert run(["upgrade"]) == 0
    told = capsys.readouterr()
    assert told.out == f"ostiary {__version__}, installed as a checkout\n"
    assert "git pull" in told.err
