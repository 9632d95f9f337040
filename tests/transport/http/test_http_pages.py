"""server/console/pages/quart_app.py and server/console/pages: which path leads to which page, and what is answered where none does."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from loopback_server import Answer, Peer, capturing, running
from msgspec.structs import replace

from auth.pages import consent_page, html_shell, page_admission
from auth.pages.page_visit import Parts
from auth.people import one_time_links
from auth.values import endpoint_paths as paths_of
from auth.values.http_messages import WireRequest
from server.store.jobs import DiskFull
from server.transport.http import fallback_answers
from server.transport.http.identity_http import FORM_BYTES, FORM_FIELDS
from tests.auth.browser_fakes import PUBLIC, House, header
from tests.auth.routed_pages import ask, site_for

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "auth" / "templates"
FORM = "Content-Type: application/x-www-form-urlencoded"
BROWSER = "Accept: text/html,*/*"

SITE = site_for(House().parts)
ROUTES = sorted(
    (rule.rule, method) for rule in SITE.url_map.iter_rules() for method in (rule.methods or set[str]())
)
PAGE_ROUTES = [(path, method) for path, method in ROUTES if path != "/"]
POSTED = [path for path, method in PAGE_ROUTES if method == "POST"]


def filled_in(path: str) -> str:
    return re.sub(r"<\w+>", "something", path)


@asynccontextmanager
async def served(parts: Parts) -> AsyncGenerator[Peer]:
    async with running(site_for(parts)) as server, await server.connect() as peer:
        yield peer


async def send(peer: Peer, method: str, path: str, *headers: str, body: bytes = b"") -> Answer:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return await peer.ask("\r\n".join((*lines, "", "")).encode() + body)


# ---------------------------------------------------------------- the map


def test_a_path_and_a_method_have_one_route() -> None:
    assert [route for route, times in Counter(ROUTES).items() if times > 1] == []
    assert len({rule.endpoint for rule in SITE.url_map.iter_rules()}) == len(list(SITE.url_map.iter_rules()))


def test_every_address_that_auth_sends_anybody_to_has_a_route() -> None:
    paths = {path for path, _ in ROUTES}
    assert {
        *paths_of.ANNOUNCED_PAGES,
        consent_page.DECIDE,
        *(f"{prefix}<token>" for prefix in one_time_links.PATHS),
    } <= paths


def test_every_form_and_link_of_a_template_leads_to_a_route_that_takes_it() -> None:
    at = SITE.url_map.bind("localhost")
    found = 0
    for template in TEMPLATES.glob("*.html"):
        for name, value in re.findall(
            r'((?:<form method="get" )?\b(?:action|href))="(/[^"#]*)"', template.read_text("utf-8")
        ):
            path = re.sub(r"{{.*?}}", "something", value).partition("?")[0]
            assert at.test(path, "POST" if name == "action" else "GET"), f"{template.name}: {value}"
            found += 1
    assert found > 20


def test_a_page_has_no_method_but_the_three_that_an_allow_header_can_name() -> None:
    assert {method for _, method in ROUTES} == {"GET", "HEAD", "POST"}


def test_no_redirect_is_made_by_the_map() -> None:
    assert not SITE.url_map.merge_slashes
    assert not [
        rule.rule for rule in SITE.url_map.iter_rules() if rule.rule != "/" and rule.rule.endswith("/")
    ]


def test_a_route_is_compiled_into_a_url_only_where_somebody_builds_one() -> None:
    """`compile` takes most of the time of making a site where the framework calls it for each route."""
    house = House()
    with counting_compiles() as compiled:
        site = site_for(house.parts)
    assert compiled == Counter()
    endpoint = next(
        rule.endpoint for rule in site.url_map.iter_rules() if rule.rule == one_time_links.path_of("<token>")
    )
    with counting_compiles() as compiled:
        assert site.url_map.bind("localhost").build(endpoint, {"token": "a b"}) == one_time_links.path_of(
            "a%20b"
        )
    assert compiled.total() > 0


@contextmanager
def counting_compiles() -> Generator[Counter[str]]:
    """Count how often each function calls the interpreter's `compile`."""
    found: Counter[str] = Counter()

    def notice(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called is compile:
            found[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(notice)
    try:
        yield found
    finally:
        sys.setprofile(before)


def test_starting_loads_neither_the_framework_nor_a_page() -> None:
    lazy = (
        "quart",
        "werkzeug",
        "jinja2",
        "auth.pages.account.account_page",
        "auth.pages.user_code_entry",
        "server.console.pages",
    )
    code = f"import sys, server.run.request_routing; print([name for name in {lazy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- what every route shares


@pytest.mark.parametrize(("path", "method"), PAGE_ROUTES)
async def test_no_view_runs_where_somebody_could_read_along(path: str, method: str) -> None:
    house = House("http://agent.example", loopback=False)
    request = WireRequest(method=method, path=filled_in(path), origin=house.origin, ip="203.0.113.7")
    reply = await ask(site_for(house.parts), request)
    assert reply.status == 400
    assert (b"needs https" in reply.body) is (method != "HEAD")


@pytest.mark.parametrize("path", POSTED)
async def test_no_view_runs_for_a_form_of_another_site(path: str) -> None:
    house = House(PUBLIC, loopback=False)
    headers = {"sec-fetch-site": "cross-site"}
    request = WireRequest(method="POST", path=filled_in(path), origin=PUBLIC, ip="", headers=headers)
    reply = await ask(site_for(house.parts), request)
    assert reply.status == 403 and b"from another site" in reply.body


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", sorted({path for path, _ in ROUTES}))
async def test_another_method_is_answered_by_the_page_with_those_that_it_has(path: str, method: str) -> None:
    has = {known for route, known in ROUTES if route == path}
    house = House()
    request = WireRequest(method=method, path=filled_in(path), origin=house.origin, ip="127.0.0.1")
    reply = await ask(site_for(house.parts), request)
    order = ("GET", "HEAD") if path == "/" else ("GET", "POST", "HEAD")
    assert reply.status == 405
    assert header(reply, "allow") == ", ".join(each for each in order if each in has)


# ---------------------------------------------------------------- what is no page, or cannot be read


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere", "/signin/", "/signin//passkey", "//signin", "//", "/Device", "/claim/", "/claim/a/b", "/claim/a%2Fb",
        "/static/x", "/mcp/x", "/device%3Fa",
    ],
)  # fmt: skip
async def test_a_path_of_no_page_is_a_404_in_the_words_of_who_asks(path: str) -> None:
    async with served(House().parts) as peer:
        for method in ("GET", "POST", "PUT", "OPTIONS"):
            told = await send(peer, method, path)
            assert (told.status, told.body) == (404, b"nothing here\n")
            assert told.headers["content-type"] == "text/plain; charset=utf-8"
        shown = await send(peer, "GET", path, BROWSER)
        assert shown.status == 404 and b"<h1>Nothing here</h1>" in shown.body
        assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
        assert (await send(peer, "HEAD", path)).headers["content-length"] == "13"


@pytest.mark.parametrize("path", ["/", "/signin", "/nowhere"])
async def test_a_method_that_no_path_has_is_told_so_in_a_line(path: str) -> None:
    async with served(House().parts) as peer:
        for method in ("TRACE", "PROPFIND"):
            answer = await send(peer, method, path)
            assert (answer.status, answer.body) == (405, b"method not allowed\n")
            assert "allow" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/signin", "/nowhere", "//signin"])
async def test_a_form_larger_than_any_of_ours_is_refused_before_anything_is_asked_of_it(path: str) -> None:
    house = House()
    async with running(site_for(house.parts)) as server:
        large = b"a=" + b"x" * FORM_BYTES
        many = b"&".join([b"a=1"] * (FORM_FIELDS + 1))
        drawn = house.drawn
        for body in (large, many):
            async with await server.connect() as peer:
                answer = await send(peer, "POST", path, FORM, body=body)
                assert (answer.status, answer.body) == (413, b"request entity too large\n")
        async with await server.connect() as peer:
            chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(large), large)
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{FORM}\r\nTransfer-Encoding: chunked\r\n\r\n"
            assert (await peer.ask(head.encode() + chunk)).status == 413
        async with await server.connect() as peer:
            assert (await send(peer, "GET", f"{path}?{many.decode()}")).status == 413
        assert house.drawn == drawn


async def test_what_is_no_utf_8_is_refused_in_a_path_and_replaced_in_a_field() -> None:
    async with running(site_for(House().parts)) as server:
        async with await server.connect() as peer:
            assert (await send(peer, "GET", "/claim/%ff")).status == 400
        async with await server.connect() as peer:
            assert (await send(peer, "GET", "/signin?next=%ff")).status == 200
            answer = await send(peer, "POST", "/signin", FORM, body=b"name=%ff&passphrase=\xff&%zz&&=")
            assert answer.status == 403 and b"out of date" in answer.body
            # Read as no form at all: it has no token either.
            for kind in ("multipart/form-data; boundary=x", "application/json"):
                answer = await send(peer, "POST", "/signin", f"Content-Type: {kind}", body=b'{"a":1}')
                assert answer.status == 403 and b"out of date" in answer.body


async def test_where_nobody_logs_in_there_is_the_way_in_and_nothing_else() -> None:
    parts = House().parts
    open_to_all = replace(parts, site=replace(parts.site, without_login=frozenset({"agent"})))
    async with running(site_for(open_to_all, needs_login=False)) as server, await server.connect() as peer:
        for path in ("/", "/connect"):
            page = (await send(peer, "GET", path)).body
            assert b"No login is needed." in page
            assert b"/signin" not in page and b"ostiary login" not in page
            assert (await send(peer, "POST", path)).body == b"wrong method\n"
        for path, method in PAGE_ROUTES:
            if path != "/connect":
                assert (await send(peer, method, filled_in(path))).status == 404


# ---------------------------------------------------------------- what fails


def fail_with(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, error: Exception) -> None:
    def fail(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr(place, name, fail)


async def test_a_page_that_fails_is_told_to_its_reader_and_once_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, logged = capturing()
    async with running(site_for(House().parts, log=log)) as server, await server.connect() as peer:
        fail_with(monkeypatch, page_admission, "recognised", DiskFull("the disk is full"))
        full = await send(peer, "GET", "/device")
        assert (full.status, full.headers["retry-after"]) == (503, str(fallback_answers.RETRY_AFTER_SECONDS))
        assert b"its disk may be full" in full.body
        fail_with(monkeypatch, page_admission, "recognised", ZeroDivisionError("a bug"))
        broken = await send(peer, "GET", "/device?user_code=secret")
        assert broken.status == 500 and b"Something went wrong" in broken.body
    assert [(call.method_name, call.kwargs["event"], call.kwargs["path"]) for call in logged.calls] == [
        ("warning", "store.unavailable", "/device"),
        ("error", "site.crashed", "/device"),
    ]
    assert isinstance(logged.calls[1].kwargs["exc_info"], ZeroDivisionError)
    assert caplog.text == ""


@pytest.mark.parametrize("kind", ["claim", "invite", "reset"])
async def test_a_link_is_logged_by_its_route_and_never_with_its_token(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    log, logged = capturing()
    parts = House().parts
    fail_with(monkeypatch, type(parts.store), "read", ZeroDivisionError("a bug"))
    async with running(site_for(parts, log=log)) as server, await server.connect() as peer:
        assert (await send(peer, "GET", f"/{kind}/hush")).status == 500
    (call,) = logged.calls
    assert call.kwargs["path"] == f"/{kind}/{{token}}"


async def test_an_error_page_that_fails_is_told_in_the_form_that_programs_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, logged = capturing()
    async with running(site_for(House().parts, log=log)) as server, await server.connect() as peer:
        fail_with(monkeypatch, html_shell, "error_page", ZeroDivisionError("a bug"))
        broken = await send(peer, "GET", "/nowhere/" + "x" * 300, BROWSER)
    assert (broken.status, b'"server_error"' in broken.body) == (500, True)
    (call,) = logged.calls
    assert (call.kwargs["event"], len(call.kwargs["path"])) == ("site.crashed", 200)
    assert caplog.text == ""
