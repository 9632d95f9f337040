"""Passkeys at a running server, from source and from the finished file: claiming, signing in and adding one, with nothing but
requests and an authenticator made of software. Real Chromium is in test_passkeys_in_chromium.py.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from programs import BINARY, SOURCE, WAIT_SECONDS, Program, needed

from tests.auth.software_authenticator import UP, SoftwareAuthenticator

pytestmark = pytest.mark.slow


class Person:
    """A browser as far as passkeys need one."""

    def __init__(self, url: str, client: httpx2.Client) -> None:
        self.url = url
        self.client = client
        self.page = ""

    def get(self, path: str) -> httpx2.Response:
        return self._keep(self.client.get(path))

    def send(self, action: str, **fields: str) -> httpx2.Response:
        """The form with this action on the current page, with what is typed."""
        form = self.page.partition(f'action="{action}"')[2].partition("</form>")[0]
        hidden = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))
        return self._keep(self.client.post(action, data=hidden | fields, headers={"origin": self.url}))

    def question(self, **more: str) -> tuple[str, dict[str, Any]]:
        block = re.search(r'data-passkey="(\w+)" data-token="([^"]+)"(?: data-link="([^"]+)")?', self.page)
        assert block is not None, self.page
        fields = {"for": block[1], "form_token": block[2], "link": block[3] or "", **more}
        reply = self.client.post("/passkey/options", data=fields, headers={"origin": self.url})
        assert reply.status_code == 200, reply.text
        said = reply.json()
        return said["ticket"], said["publicKey"]

    def _keep(self, reply: httpx2.Response) -> httpx2.Response:
        self.page = reply.text
        return reply


@contextmanager
def browsing(url: str) -> Generator[Person]:
    with httpx2.Client(base_url=url, trust_env=False, timeout=WAIT_SECONDS, follow_redirects=True) as client:
        yield Person(url, client)


@pytest.fixture(
    params=[pytest.param(SOURCE, id="source"), pytest.param(BINARY, id="file", marks=pytest.mark.binary)]
)
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    if request.param == BINARY:
        needed(Path(BINARY[0]), "scripts/build")
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        yield Program(command=request.param, home=Path(folder))


def test_a_passkey_claims_the_server_signs_in_and_is_joined_by_a_second(program: Program) -> None:
    with program.serving() as server:
        url = server.url.replace("127.0.0.1", "localhost")
        path = program.at_machine("claim")["url"].removeprefix(server.url)
        key = SoftwareAuthenticator(origin=url, rp_id="localhost")
        second = SoftwareAuthenticator(origin=url, rp_id="localhost", credential_id=b"x" * 1_023)

        with browsing(url) as person:
            person.get(path)
            ticket, options = person.question(name="olivia")
            page = person.send(path, name="olivia", ticket=ticket, credential=key.make(options))
            assert page.status_code == 200 and "The server is yours, olivia" in page.text

        with browsing(url) as person:
            person.get("/signin?next=/account/you")
            ticket, options = person.question()
            page = person.send("/signin/passkey", ticket=ticket, credential=key.answer(options))
            assert page.url.path == "/account/you" and "your only way in" in page.text

            person.send("/account/passkeys/new")
            ticket, options = person.question()
            added = {"ticket": ticket, "credential": second.make(options), "passkey_name": "The second"}
            page = person.send("/account/passkeys", **added)
            assert page.url.path == "/account/you" and "The second" in page.text

        with browsing(url) as person:
            person.get("/signin")
            ticket, options = person.question()
            second.flags = UP  # touched, and nobody recognised
            page = person.send("/signin/passkey", ticket=ticket, credential=second.answer(options))
            assert page.status_code == 400 and "That passkey was not accepted" in page.text

        events = [(row["event"], row["outcome"]) for row in program.at_machine("audit")]
        assert ("passkey.added", "ok") in events and ("user.signed_in", "refused") in events
