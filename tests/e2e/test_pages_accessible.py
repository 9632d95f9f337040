"""Every page in every state, at both sizes and in both lights: axe has nothing to say of it, nothing scrolls sideways, every control
is large enough for a thumb, and everything is there that a browser and a screen reader need to help.

`scripts/pictures` keeps a picture of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from auth.pages import html_shell
from server.console.overview.overview_values import RunningParts
from tests.auth.browser_fakes import House
from tests.auth.routed_pages import route_of, site_for
from tests.e2e.chromium import PICTURES, SIZES, Server, picture, serving, tab
from tests.e2e.page_states import SERVERS, TOURS, Tour

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.peers]

ROOT = Path(__file__).parents[2]
AXE = ROOT / "tests/peers/node_modules/axe-core/axe.min.js"
TEMPLATES = ROOT / "auth/templates"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
HEAVIEST = 64 * 1024  # an account with 40 logins; all others are below 20 KiB
STYLE_SHEET = 16 * 1024
COLOURED = (
    r"color|background|fill|stroke|opacity|filter|shadow|border(?!-(collapse|spacing))[^:;]*:(?!\s*0\b)|--"
)

# Of axe's rules, those that ask where something stands and how large it is. All others ask the document and what is shown of it.
BY_PLACE = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "skip-link", "target-size"]
COLOURS = ["color-contrast"]

ASK_AXE = """async rules => {
  const found = await axe.run(document, {resultTypes: ["violations"], preload: false, runOnly: rules});
  return found.violations.flatMap(rule => rule.nodes.map(node => rule.id + ": " + node.html + " " + node.failureSummary));
}"""

# Which elements there are for eyes, as one string: those that have a place on the page, and are not hidden there.
SHOWN = """() => [...document.querySelectorAll("*")].map(each => {
  const box = each.getBoundingClientRect();
  const there = box.width && box.height && box.right + scrollX > 0 && box.bottom + scrollY > 0;
  return there && each.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) ? 1 : 0;
}).join("")"""

LOOK = """() => {
  document.getAnimations().forEach(animation => animation.finish());
  const seen = each => each.checkVisibility() && !each.closest("[hidden]");
  const all = query => [...document.querySelectorAll(query)].filter(seen);
  const faults = [];
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide) faults.push("scrolls sideways by " + wide + "px");
  for (const each of all("button, .button, header a, summary, input:not([type=checkbox], [type=radio]), label.tick"))
    if (each.getBoundingClientRect().height < 44) faults.push("too small for a thumb: " + each.outerHTML);
  for (const each of all("main *"))
    if (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible" && each.tagName !== "INPUT")
      faults.push("cut off: " + each.outerHTML.slice(0, 200));
  if (document.documentElement.lang !== "en") faults.push("says no language");
  if (!/^.+ · Ostiary$/.test(document.title)) faults.push("has the title " + document.title);
  if (document.querySelectorAll("h1").length !== 1) faults.push("has not one h1");
  const levels = all("h1, h2, h3").map(each => +each.tagName[1]);
  levels.forEach((level, place) => { if (level > (levels[place - 1] || 0) + 1) faults.push("skips a level of headings"); });
  for (const each of all("main input:not([type=checkbox], [type=radio])")) {
    if (!each.labels.length) faults.push("has no label: " + each.outerHTML);
    if (!each.autocomplete) faults.push("does not say what belongs there: " + each.outerHTML);
  }
  return faults;
}"""


class Beside:
    """A world of scripts beside each document of a page, with axe in it: not the page's own, so that our content policy stays in force.

    It is made with the document, because Chromium compiles what begins there once, and what comes later anew for each document.
    """

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Page.enable")
        axe = {"source": AXE.read_text("utf-8"), "worldName": "axe"}
        self._session.send("Page.addScriptToEvaluateOnNewDocument", axe)

    def ask(self, function: str, *arguments: object) -> Any:
        frame = self._session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self._session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "axe"})
        call = {
            "functionDeclaration": function,
            "arguments": [{"value": each} for each in arguments],
            "executionContextId": world["executionContextId"],
            "awaitPromise": True,
            "returnByValue": True,
        }
        said = self._session.send("Runtime.callFunctionOn", call)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"]["value"]


class Walks:
    """The tours, each gone once, by whichever test comes first."""

    def __init__(self, browser: Browser) -> None:
        self.rendered: set[str] = set()  # the templates that were filled in
        self.answered: set[tuple[str | None, str]] = set()
        self.faults: dict[int, dict[str, list[str]]] = {}  # by the tour's place, and by the name of a state
        self.site: Final = site_for(House().parts, running=RunningParts())
        self._browser = browser

    def walk(self, place: int) -> dict[str, list[str]]:
        if place not in self.faults:
            self.faults[place] = self._walk(TOURS[place])
        return self.faults[place]

    def _walk(self, tour: Tour) -> dict[str, list[str]]:
        faults: dict[str, list[str]] = {}
        with (
            serving(servers=SERVERS) as server,
            tab(self._browser, size="desk", javascript=True, device_scale_factor=1) as page,
        ):
            beside = Beside(page)
            for name in tour(server, page):
                assert name not in faults
                faults[name] = _look(page, beside, name) + _too_heavy(server)
            self.answered |= {(route_of(self.site, each), each.method) for each in server.requests}
        return faults


@pytest.fixture(scope="module")
def walks(chromium_shell: Browser) -> Iterator[Walks]:
    made = Walks(chromium_shell)
    render = html_shell.render

    def noting(template: str, *args: Any, **more: Any) -> Any:
        made.rendered.add(template)
        return render(template, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html_shell, "render", noting)
        yield made


def name_of(place: int) -> str:
    tour = TOURS[place]
    if isinstance(tour, partial):
        return "-".join((tour.func.__name__, *(str(each) for each in tour.keywords.values())))
    return tour.__name__


@pytest.mark.parametrize("place", range(len(TOURS)), ids=name_of)
def test_every_page_in_every_state_is_there_for_everybody(walks: Walks, place: int) -> None:
    faults = walks.walk(place)
    assert faults
    assert not any(faults.values()), "\n".join(
        f"{name}: {fault}" for name, found in faults.items() for fault in dict.fromkeys(found)
    )


def test_every_page_has_a_tour_that_leads_to_it(walks: Walks) -> None:
    names = [name for place in range(len(TOURS)) for name in walks.walk(place)]
    assert len(names) == len(set(names))
    table = {
        (rule.rule, method)
        for rule in walks.site.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD"}
        if rule.rule != "/"
    }
    assert walks.answered >= table, f"no tour in page_states.py leads to {sorted(table - walks.answered)}"
    whole = {
        each.name for each in TEMPLATES.glob("*.html") if '{% extends "shell.html" %}' in each.read_text()
    }
    assert walks.rendered >= whole, f"no tour in page_states.py shows {sorted(whole - walks.rendered)}"


def _look(page: Page, beside: Beside, name: str) -> list[str]:
    """Ask axe everything at the first size, where letters are smallest. At another it is asked anew whatever can be otherwise there: that is
    everything where other things are shown. Colours are all that the light changes, and no size changes them."""
    faults: list[str] = []
    seen: set[str] = set()
    page.wait_for_load_state()  # beside it nobody waits for the document to be there
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        faults += beside.ask(LOOK)
        shown = beside.ask(SHOWN)
        anew = shown not in seen
        seen.add(shown)
        for light, rules in (("light", RULES if anew else BY_PLACE), ("dark", COLOURS if anew else [])):
            if rules or PICTURES:
                page.emulate_media(color_scheme="dark" if light == "dark" else "light")
            if rules:
                faults += beside.ask(ASK_AXE, rules)
            picture(page, f"pages/{name}-{size}-{light}", full_page=True, caret="initial")
        page.emulate_media(color_scheme="light")
    return faults


def _too_heavy(server: Server) -> list[str]:
    pages_sent = [
        reply for reply in server.replies if any("text/html" in value for _, value in reply.headers)
    ]
    return [f"weighs {len(reply.body)} bytes" for reply in pages_sent[-1:] if len(reply.body) > HEAVIEST]


def test_the_style_sheet_stays_small_and_asks_for_nothing_from_outside() -> None:
    style = (TEMPLATES / "style.css").read_text("utf-8")
    assert len(style.encode()) < STYLE_SHEET
    for template in TEMPLATES.iterdir():
        text = template.read_text("utf-8")
        assert not re.search(r"<[^>]+ (style|on\w+)=", text), (
            f"{template.name}: our policy does not let these be"
        )
        assert "@import" not in text
        assert "url(http" not in text
        assert 'src="http' not in text


def test_no_size_of_the_window_changes_a_colour() -> None:
    """Which is why the dark is not looked at anew at each size."""
    for sheet in TEMPLATES.glob("*.css"):
        for condition, rules in re.findall(r"@media ([^{]+){((?:[^{}]*{[^{}]*})*)", sheet.read_text("utf-8")):
            if "width" in condition or "height" in condition:
                assert not re.search(COLOURED, rules), f"{sheet.name}: @media {condition}"
