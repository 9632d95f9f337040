"""Pages as text: each block on a line of its own, with what somebody can tick, fill in and press."""

from __future__ import annotations

import re
from difflib import ndiff
from html.parser import HTMLParser

from tests.auth.browser_fakes import Browser

UNSEEN = {"style", "script", "svg", "nav", "footer", "title"}
INLINE = {"a", "b", "bdi", "br", "code", "em", "i", "input", "ins", "del", "mark", "span", "strong", "time", "u", "wbr"}  # fmt: skip
MOST_OF_A_LINE = 400


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.unseen = 0
        self.written = False  # in a block whose lines are as they were written

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in INLINE:
            self.lines.append("")
        if tag == "pre":
            self.written = True
        if tag == "br":
            self.lines.append("")
        if tag in UNSEEN:
            self.unseen += 1
        elif tag == "button":
            self.lines[-1] += f"({given.get('aria-label') or given.get('value') or ''}) "
        elif tag == "input" and given.get("type") != "hidden" and "hidden" not in given:
            self.lines[-1] += _field(given)

    def handle_endtag(self, tag: str) -> None:
        if tag in UNSEEN:
            self.unseen -= 1
        if tag == "pre":
            self.written = False
        if tag not in INLINE:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if self.unseen:
            return
        first, *more = data.split("\n") if self.written else [data]
        self.lines[-1] += first
        self.lines += more


def _field(given: dict[str, str | None]) -> str:
    name = given.get("name") or ""
    if given.get("type") in ("checkbox", "radio"):
        return f"[{'x' if 'checked' in given else ' '}] {given.get('value') or name} "
    wrong = "!" if given.get("aria-invalid") else ""
    return f"[{name}{wrong}: {given.get('value') or given.get('placeholder') or ''}] "


def page_text(html: str) -> list[str]:
    """Return what a person reads of a page between its header and its footer, line by line, but for lines that go on and on."""
    reader = _Reader()
    reader.feed(html.partition("</header>")[2] or html)
    lines = (" ".join(line.split()) for line in reader.lines)
    return [line for line in lines if 0 < len(line) < MOST_OF_A_LINE]


class PageBook:
    """Pages of one tour, as they were when somebody came to them. One that was there before is told by what is different."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.pages: dict[str, tuple[str, list[str]]] = {}  # the last of each title, by what was done

    def note(self, what: str, browser: Browser, **hidden: str) -> None:
        """`hidden`: what is another each time, by the word that stands for it."""
        html = re.sub(r"\b[A-Z]{4}-[A-Z]{4}\b", "CODE-CODE", browser.text)
        title = "".join(re.findall(r"<title>(.*?)</title>", html, re.DOTALL)).removesuffix(" · Ostiary")
        text = "\n".join(page_text(html))
        for word, value in hidden.items():
            text = text.replace(value, word)
        lines = text.splitlines()
        shown = lines
        if title in self.pages:
            before, known = self.pages[title]
            changes = [line for line in ndiff(known, lines) if line[0] in "+-"]
            if len(changes) < len(lines):
                shown = [f"(as: {before})", *changes]
        self.pages[title] = what, lines
        self.told += [f"==== {what} [{browser.page.status} {title}]", *shown, ""]

    @property
    def text(self) -> str:
        return "\n".join(self.told)
