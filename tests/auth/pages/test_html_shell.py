from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from auth.pages import html_shell, page_admission
from auth.values.http_messages import WireReply, WireRequest
from auth.values.requester import clean, shown
from tests.auth.browser_fakes import LOOPBACK, PUBLIC, START, Browser, House, header, values
from tests.auth.routed_pages import RoutedPages

FRAME = html_shell.frame_for(PUBLIC, bytes(range(16)))
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


SCRIPTED = frozenset({"claim"})


async def every_page() -> dict[str, WireReply]:
    """One of each, as a visitor over https gets them."""
    house = House(PUBLIC, loopback=False)
    browser = Browser(house)
    found = {"signin": await browser.get("/signin"), "claim": await browser.get(house.claim_path())}
    found["link over"] = await browser.get("/claim/none")
    house.owned()
    found["wrong method"] = await browser.get("/device/decide")
    found["foreign"] = await browser.post("/signin", site="cross-site")
    found["stale"] = await browser.post("/signin")
    found["device"] = await browser.sign_in()
    found["welcome"] = await browser.get("/welcome")
    found["confirm"] = await browser.get(f"/device?user_code={house.ask()}")
    found["done"] = await browser.submit("/device/decide#approve")
    return found


async def test_every_page_has_the_headers_that_keep_it_from_being_framed_sniffed_cached_or_scripted() -> None:
    for name, page in (await every_page()).items():
        policy = header(page, "content-security-policy") or ""
        nonce = re.search(r"style-src 'nonce-([A-Za-z0-9+/=]+)'", policy)
        assert nonce is not None, name
        assert f'<style nonce="{nonce[1]}">' in page.body.decode(), name
        # The one page that can make a passkey has a script of ours; nothing else is ever allowed to run.
        script = {f"script-src 'nonce-{nonce[1]}'", "connect-src 'self'"} if name in SCRIPTED else set[str]()
        assert set(policy.split("; ")) == script | {
            "default-src 'none'",
            f"style-src 'nonce-{nonce[1]}'",
            "img-src 'self' data:",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        }
        assert header(page, "x-frame-options") == "DENY"
        assert header(page, "x-content-type-options") == "nosniff"
        assert header(page, "cross-origin-opener-policy") == "same-origin"
        assert header(page, "referrer-policy") == "no-referrer"
        assert header(page, "cache-control") == "no-store"
        assert header(page, "content-type") == "text/html; charset=utf-8"
        assert header(page, "strict-transport-security") == "max-age=31536000"
        assert not values(page, "access-control-allow-origin")


async def test_no_page_has_a_script_an_inline_style_or_anything_from_elsewhere() -> None:
    for name, page in (await every_page()).items():
        text = page.body.decode()
        scripts = re.findall(r"<script[^>]*>", text)
        assert len(scripts) == (name in SCRIPTED) and all(" nonce=" in each for each in scripts), name
        text = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
        assert " style=" not in text and not re.search(r"\son\w+=", text), name
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), name
        assert "@import" not in text and "url(" not in text, name


async def test_every_page_has_one_heading_a_language_and_a_label_for_every_field() -> None:
    for name, page in (await every_page()).items():
        text = page.body.decode()
        assert text.count("<h1>") == 1 and '<html lang="en">' in text, name
        for tag in re.findall(r"<input[^>]*>", text):
            if 'type="hidden"' in tag or " hidden" in tag or 'type="checkbox"' in tag:
                continue
            found = re.search(r'id="([^"]+)"', tag)
            assert found and f'<label for="{found[1]}">' in text, tag


async def test_a_nonce_is_used_once() -> None:
    house = House()
    browser = Browser(house)
    policies = {header(await browser.get("/signin"), "content-security-policy") for _ in range(3)}
    assert len(policies) == 3


async def test_a_redirect_is_a_303_that_is_not_stored_and_leaves_no_referrer() -> None:
    house = House().owned()
    page = await Browser(house).get("/device", follow=False)
    assert page.status == 303
    assert header(page, "cache-control") == "no-store" and header(page, "referrer-policy") == "no-referrer"


@pytest.mark.parametrize(
    "path", ["/mcp", "/claim", "/claim/", "/claim/a/b", "/signin/", "/Device", "/claim/{token}/"]
)
async def test_other_paths_are_left_to_others(path: str) -> None:
    request = WireRequest(method="GET", path=path, origin=LOOPBACK, ip="127.0.0.1")
    assert await RoutedPages().answer(request, House().parts) is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", ""])
def test_other_methods_are_told_which_ones_work(method: str) -> None:
    request = WireRequest(method=method, path="/signin", origin=LOOPBACK, ip="127.0.0.1")
    reply = page_admission.refuse_method(request, House().parts, ("GET", "POST", "HEAD"))
    assert reply.status == 405
    assert header(reply, "allow") == "GET, POST, HEAD"


async def test_head_is_get_without_a_body() -> None:
    house = House()
    request = WireRequest(method="GET", path="/signin", origin=LOOPBACK, ip="127.0.0.1")
    get = await RoutedPages().answer(request, house.parts)
    head = await RoutedPages().answer(replace(request, method="HEAD"), house.parts)
    assert head is not None and get is not None
    assert head.status == get.status == 200 and head.body == b"" and get.body


@pytest.mark.parametrize(
    ("origin", "loopback"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:1", True),
        ("http://127.8.9.1", True),
        ("http://[::1]:1", True),
        ("http://app.localhost", True),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://203.0.113.7", False),
        ("http://notlocalhost", False),
        ("", False),
    ],
)
def test_loopback_is_an_address_or_localhost(origin: str, loopback: bool) -> None:
    assert page_admission.is_loopback(origin) is loopback


def test_an_error_page_says_what_happened_and_what_is_next() -> None:
    page = html_shell.error_page(
        400,
        "Not <here>",
        "It & that.",
        "Run `ostiary <x>` now.",
        FRAME,
        headers=(("retry-after", "3"),),
        back=("/", "Home"),
    )
    text = page.body.decode()
    assert page.status == 400 and header(page, "retry-after") == "3"
    assert "<h1>Not &lt;here&gt;</h1>" in text and "It &amp; that." in text
    assert "<code>ostiary &lt;x&gt;</code>" in text
    assert 'role="alert"' in text and 'href="/"' in text


def test_the_shell_takes_html_from_its_author_and_escapes_everything_else() -> None:
    text = html_shell.shell_page("T", Markup("<p>{}</p>").format("<i>"), FRAME).body.decode()
    assert "<p>&lt;i&gt;</p>" in text and "<title>T · Ostiary</title>" in text and "agent.example" in text
    assert "&lt;b&gt;" in html_shell.shell_page("T", "<b>", FRAME).body.decode()  # type: ignore[arg-type]


def test_a_page_survives_a_lone_surrogate() -> None:
    assert html_shell.error_page(400, "\ud800", "x", "y", FRAME).body


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (0, "1 second"),
        (1, "1 second"),
        (1_001, "2 seconds"),
        (MINUTE, "60 seconds"),
        (MINUTE + 1, "2 minutes"),
        (15 * MINUTE, "15 minutes"),
        (2 * HOUR, "2 hours"),
        (30 * DAY, "30 days"),
    ],
)
def test_waits_are_told_in_words_and_never_too_short(duration: int, words: str) -> None:
    assert html_shell.in_words(duration) == words


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (-5, "just now"),
        (59 * SECOND, "just now"),
        (MINUTE, "1 minute ago"),
        (9 * MINUTE + 59, "9 minutes ago"),
    ],
)
def test_times_past_are_told_in_words(passed: int, words: str) -> None:
    assert html_shell.ago(START, START + passed) == words


def test_the_clock_is_told_in_utc() -> None:
    assert html_shell.clock(START) == "21 September 2026, 14:13 UTC"


def test_claimed_texts_are_one_line_without_tricks() -> None:
    assert clean("a\u202eb\nc", 10) == "ab c"


def test_a_text_that_is_cut_says_so() -> None:
    assert shown("exactly so", 10) == "exactly so"
    assert shown("exactly so\u202e", 10) == "exactly so", "nothing that anybody would see was cut"
    assert shown("exactly so long", 10) == "exactly s…"
    assert shown("a word and more", 8) == "a word…", "and no space before it"


def test_an_address_breaks_between_its_groups_alone() -> None:
    assert html_shell.address("203.0.113.9") == "203.0.113.9"
    assert html_shell.address("2001:db8::1") == "2001:<wbr>db8::<wbr>1"
    assert html_shell.address("<b>") == "&lt;b&gt;"
