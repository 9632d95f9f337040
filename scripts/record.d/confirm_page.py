"""What a person does in the browser while the terminal waits: becoming the owner, and looking at who asks to come in. The page on which they
look is the picture."""

from __future__ import annotations

import os
import shutil
from base64 import b64decode
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

NAME, PASSPHRASE = "vera", "four calm herons wading"
WIDTH, HEIGHT, SHARPNESS, QUALITY = 520, 800, 2, 85
PATIENCE_MS = 20_000
MAX_PICTURE = 100 * 1024

# In the text of the page alone: what it is made of, and what it leads to, stays as it was.
REPLACE = """words => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    for (const [from, to] of Object.entries(words)) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""


@contextmanager
def browser() -> Generator[Page]:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            context = launched.new_context(
                viewport={"width": WIDTH, "height": HEIGHT},
                device_scale_factor=SHARPNESS,
                java_script_enabled=False,
            )
            context.set_default_timeout(PATIENCE_MS)
            yield context.new_page()
        finally:
            launched.close()


def claim(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_label("Name").fill(NAME)
    page.get_by_label("Passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_label("The same passphrase again").fill(PASSPHRASE)
    page.get_by_role("button", name="Claim this server").click()
    expect(page.get_by_role("heading", name="The server is yours")).to_be_visible()


def look(page: Page, link: str, words: Mapping[str, str], out: Path) -> None:
    """Open the page about a code, and take its picture in either light, with these words in place of those."""
    page.goto(link)
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_enabled()
    # As on a screen that is high enough: nothing is scrolled away below what stays in place.
    height = page.context.new_cdp_session(page).send("Page.getLayoutMetrics")["cssContentSize"]["height"]
    page.set_viewport_size({"width": WIDTH, "height": int(height)})
    approve.hover()  # it fades in once it may be chosen
    page.mouse.move(0, 0)
    page.evaluate(REPLACE, dict(words))
    # Playwright itself makes no WebP, which is a third of a PNG.
    session = page.context.new_cdp_session(page)
    for light in ("light", "dark"):
        page.emulate_media(color_scheme=light, reduced_motion="reduce")
        expect(approve).to_have_css("opacity", "1")
        shown = session.send("Page.getLayoutMetrics")["cssContentSize"]
        taken = session.send(
            "Page.captureScreenshot",
            {
                "format": "webp",
                "quality": QUALITY,
                "captureBeyondViewport": True,
                "clip": {**shown, "scale": 1},
            },
        )
        picture = b64decode(taken["data"])
        if len(picture) > MAX_PICTURE:
            raise SystemExit(f"error: confirm-{light}.webp has {len(picture)} bytes, more than {MAX_PICTURE}")
        (out / f"confirm-{light}.webp").write_bytes(picture)


def approve(page: Page) -> None:
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Approved")).to_be_visible()
