"""Signing in with a provider at a running server: once with nothing but requests, once in Chromium, whose idea of our content
policy decides whether the way there is open at all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, expect
from programs import SOURCE, WAIT_SECONDS, Program, Server, claim_in_browser

from tests.auth.upstream_fakes import CLIENT, SECRET, FakeProvider, provided
from tests.e2e.chromium import picture, tab

pytestmark = pytest.mark.slow


class Running(NamedTuple):
    program: Program
    server: Server
    fake: FakeProvider


@pytest.fixture
def running(home: Path) -> Iterator[Running]:
    with provided(lambda: time.time_ns() // 1_000_000) as fake:
        (home / "secret").write_text(SECRET + "\n", "utf-8")
        settings = home / "ostiary.toml"
        settings.write_text(
            f'[[upstream]]\nname = "work"\nkind = "oidc"\nlabel = "Example Ltd"\nissuer = "{fake.origin}"\n'
            f'client_id = "{CLIENT}"\nclient_secret = "file:{home / "secret"}"\n'
            'allow = [{ subject = "sub-of-ann", user = "olivia" }]\n',
            "utf-8",
        )
        program = Program(command=SOURCE, home=home)
        with program.serving("--config", str(settings)) as server:
            link = program.at_machine("claim")["url"]
            claim_in_browser(link, "four calm herons wading")
            yield Running(program, server, fake)


def test_the_way_to_a_provider_and_back_with_nothing_but_requests(running: Running) -> None:
    server, fake = running.server, running.fake
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=WAIT_SECONDS) as browser:
        page = browser.get("/signin?next=/account").text
        form = page.partition('action="/signin/with/work"')[2].partition("</form>")[0]
        fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form))
        left = browser.post("/signin/with/work", data=fields, headers={"origin": server.url})
        assert left.status_code == 303
        there = httpx2.get(left.headers["location"], trust_env=False, timeout=WAIT_SECONDS)
        assert there.status_code == 303
        back = browser.get(there.headers["location"])
        assert (back.status_code, back.headers["location"]) == (303, "/account")
        assert "olivia" in browser.get("/account/you").text
        again = browser.get(there.headers["location"])
        assert again.status_code == 400 and "This sign-in has ended" in again.text
    query = urlsplit(there.headers["location"]).query
    for secret in (
        SECRET,
        *(part.partition("=")[2] for part in query.split("&") if not part.startswith("iss=")),
    ):
        assert secret not in server.said()
    assert "POST /token" in fake.asked


@pytest.mark.browser
def test_a_person_in_chromium_goes_there_and_comes_back_signed_in(
    running: Running, chromium: Browser
) -> None:
    with tab(chromium) as page:
        page.goto(running.server.url + "/signin")
        picture(page, "upstream-signin-phone-light", full_page=True)
        page.get_by_role("button", name="Sign in with Example Ltd").click()
        expect(page.get_by_role("banner").get_by_role("link", name="olivia")).to_be_visible()
    running.fake.subject = "somebody else"
    with tab(chromium) as page:
        page.goto(running.server.url + "/signin")
        page.get_by_role("button", name="Sign in with Example Ltd").click()
        expect(page.get_by_text("Ask whoever runs this server")).to_be_visible()
        picture(page, "upstream-refused-phone-light", full_page=True)
