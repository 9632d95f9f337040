"""Every page in every state, at both sizes and in both lights: axe has nothing to say of it, nothing scrolls sideways, every control
is large enough for a thumb, and everything is there that a browser and a screen reader need to help.

axe runs beside the page, not in it: our content policy stays in force. `scripts/pictures` keeps a picture of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from auth import pages
from server.overview.look import RunningParts
from tests.auth.browser_fakes import House
from tests.auth.routed_pages import route_of, site_for
from tests.e2e.chromium import LIGHTS, SIZES, Server, picture, serving, tab
from tests.e2e.page_states import SERVERS, TOURS, Tour

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.peers]

ROOT = Path(__file__).parents[2]
AXE = ROOT / "tests/peers/node_modules/axe-core/axe.min.js"
TEMPLATES = ROOT / "auth/templates"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
HEAVIEST = 64 * 1024  # an account with 40 logins; all others are below 20 KiB
STYLE_SHEET = 16 * 1024

# Colours are all that the light changes: in the dark, axe looks at nothing else.
ASK_AXE = """async ([tags, colours]) => {
  const options = {resultTypes: ["violations"], preload: false, runOnly: colours ? ["color-contrast"] : tags};
  const found = await axe.run(document, options);
  return found.violations.flatMap(rule => rule.nodes.map(node => rule.id + ": " + node.html + " " + node.failureSummary));
}"""

LOOK = """() => {
  document.getAnimations().forEach(animation => animation.finish());
  const seen = each => each.checkVisibility() && !each.closest("[hidden]");
  const all = query => [...document.querySelectorAll(query)].filter(seen);
  const faults = [];
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide) faults.push("scrolls sideways by " + wide + "px");
  for (const each of all("button, .button, header a, input:not([type=checkbox]), label.tick"))
    if (each.getBoundingClientRect().height < 44) faults.push("too small for a thumb: " + each.outerHTML);
  for (const each of all("main *"))
    if (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible" && each.tagName !== "INPUT")
      faults.push("cut off: " + each.outerHTML.slice(0, 200));
  if (document.documentElement.lang !== "en") faults.push("says no language");
  if (!/^.+ · Ostiary$/.test(document.title)) faults.push("has the title " + document.title);
  if (document.querySelectorAll("h1").length !== 1) faults.push("has not one h1");
  const levels = all("h1, h2, h3").map(each => +each.tagName[1]);
  levels.forEach((level, place) => { if (level > (levels[place - 1] || 0) + 1) faults.push("skips a level of headings"); });
  for (const each of all("main input:not([type=checkbox])")) {
    if (!each.labels.length) faults.push("has no label: " + each.outerHTML);
    if (!each.autocomplete) faults.push("does not say what belongs there: " + each.outerHTML);
  }
  return faults;
}"""


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
        axe = AXE.read_text("utf-8")
        faults: dict[str, list[str]] = {}
        with (
            serving(servers=SERVERS) as server,
            tab(self._browser, size="desk", javascript=True, device_scale_factor=1) as page,
        ):
            for name in tour(server, page):
                assert name not in faults
                faults[name] = _look(page, name, axe) + _too_heavy(server)
            self.answered |= {(route_of(self.site, each), each.method) for each in server.requests}
        return faults


@pytest.fixture(scope="module")
def walks(chromium: Browser) -> Iterator[Walks]:
    made = Walks(chromium)
    render = pages.render

    def noting(template: str, *args: Any, **more: Any) -> Any:
        made.rendered.add(template)
        return render(template, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "render", noting)
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


def _look(page: Page, name: str, axe: str) -> list[str]:
    faults: list[str] = []
    page.evaluate(axe)
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        faults += page.evaluate(LOOK)
        for light in LIGHTS:
            page.emulate_media(color_scheme="dark" if light == "dark" else "light")
            faults += page.evaluate(ASK_AXE, [RULES, light == "dark"])
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
