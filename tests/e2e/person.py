"""Somebody with a browser, as far as our pages need one: keeps cookies, fills in forms, presses buttons, follows where that leads.

Real Chromium is in chromium.py; this one is for the tests of other people's programs, which only need that
somebody says yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode, urlsplit

import httpx2
from programs import WAIT_SECONDS, Program, Server

PASSPHRASE = "four calm herons wading"
NAME = "olivia"


@dataclass
class Button:
    words: str = ""
    name: str = ""
    value: str = ""


@dataclass
class Form:
    action: str
    fields: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    ticked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    unticked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    buttons: list[Button] = field(default_factory=list[Button])


class Forms(HTMLParser):
    """The forms of a page, with what would be sent of them untouched."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._by_id: dict[str, Form] = {}
        self._form: Form | None = None
        self._button: Button | None = None
        self._late: list[tuple[str, Button]] = []
        self.feed(page)
        for form_id, button in self._late:
            self._by_id[form_id].buttons.append(button)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = Form(action=given.get("action", ""))
            self.found.append(self._form)
            self._by_id[given.get("id", "")] = self._form
        elif tag == "input" and self._form is not None and given.get("name"):
            pair = (given["name"], given.get("value", "on" if given.get("type") == "checkbox" else ""))
            if given.get("type") == "checkbox":
                (self._form.ticked if "checked" in given else self._form.unticked).append(pair)
            else:
                self._form.fields.append(pair)
        elif tag == "button":
            self._button = Button(name=given.get("name", ""), value=given.get("value", ""))
            if "form" in given:
                self._late.append((given["form"], self._button))
            elif self._form is not None:
                self._form.buttons.append(self._button)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "button":
            self._button = None

    def handle_data(self, data: str) -> None:
        if self._button is not None:
            self._button.words = f"{self._button.words} {data.strip()}".strip()


class Person:
    def __init__(self) -> None:
        self.browser = httpx2.Client(follow_redirects=True, trust_env=False, timeout=WAIT_SECONDS)
        self.browser.headers["User-Agent"] = "a person's browser"

    def close(self) -> None:
        self.browser.close()

    def claim(self, program: Program, server: Server) -> None:
        """Become the owner, and stay signed in."""
        link = program.at_machine("claim")["url"]
        assert link.startswith(server.url)
        page = self.browser.get(link)
        answers = {"name": NAME, "passphrase": PASSPHRASE, "passphrase_again": PASSPHRASE}
        self.press(page, "Claim", answers)

    def allow(self, url: str, *, words: str = "Allow") -> httpx2.Response:
        """Open an authorization address and say yes; what the program's own page says then."""
        page = self.browser.get(url)
        assert page.status_code == 200, page.text
        if not any(
            button.words.startswith(words) for form in Forms(page.text).found for button in form.buttons
        ):
            return page  # a yes was remembered, and the browser is back already
        return self.press(page, words)

    def approve(self, url: str) -> httpx2.Response:
        """Open the complete link of a device login and approve."""
        page = self.browser.get(url, headers={"Sec-Fetch-Site": "none"})
        return self.press(page, "Approve")

    def press(
        self,
        page: httpx2.Response,
        words: str,
        answers: Mapping[str, str] | None = None,
        *,
        follow: bool = True,
    ) -> httpx2.Response:
        """The page that comes after the button whose words begin so; without `follow`, what the button leads to."""
        assert page.status_code < 400, page.text
        for form in Forms(page.text).found:
            for button in form.buttons:
                if not button.words.startswith(words):
                    continue
                fields = [(name, (answers or {}).get(name, value)) for name, value in form.fields]
                fields += form.ticked
                if button.name:
                    fields.append((button.name, button.value))
                target = page.url.join(form.action)
                origin = f"{target.scheme}://{target.netloc.decode()}"
                answer = self.browser.post(
                    target,
                    content=urlencode(fields).encode(),
                    headers={
                        "Content-Type": "application/x-www-form-urlencoded",
                        "Origin": origin,
                        "Sec-Fetch-Site": "same-origin",
                    },
                    follow_redirects=follow,
                )
                assert answer.status_code < 400, f"{urlsplit(str(target)).path}: {answer.text}"
                return answer
        raise AssertionError(f"there is no button {words!r} on this page:\n{page.text}")
