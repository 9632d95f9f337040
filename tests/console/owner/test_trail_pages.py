"""The audit trail in a browser: rows by person, kind, outcome and day, each once; whose names they are; and whether it is whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html import unescape
from typing import Any, cast
from urllib.parse import quote

import pytest
import trio

from auth.audit import audit_search, audit_trail
from auth.audit.audit_events import EVENTS, KINDS, words_of
from server.admin.audit_commands import AuditAdmin
from server.console.owner.audit_page import DAY_CHARACTERS, WHO_CHARACTERS
from tests.auth.browser_fakes import Browser, House
from tests.auth.people_fakes import household
from tests.auth.routed_pages import AUDIT_KEY
from tests.console.owner.test_people_pages import BOB, DAY, MINUTE, owner

AUDIT, VERIFY = "/account/audit", "/account/audit/verify"


def write(house: House, event: str, actor: str, **more: str) -> None:
    house.store.now(partial(audit_trail.record, at=house.time, event=event, actor=actor, **more))  # pyright: ignore[reportArgumentType]


def events(browser: Browser) -> list[str]:
    return re.findall(r"<code>([a-z_]+\.[a-z_]+)</code>", browser.text)


async def test_what_was_decided_is_told_in_words_with_the_names_of_people() -> None:
    house = household()
    browser = await owner(house)
    await browser.submit(f"{BOB}/disable")
    write(house, "device.approved", "local:0", client_id="mcp-remote", ip="203.0.113.9")
    write(house, "grant.revoked", "user:usr_carol", reason="account of usr_bob locked")
    await browser.get(AUDIT)
    words = browser.words
    assert "alice disabled an account bob" in words and "bob bob" not in words
    assert "root (at the machine) let a device in" in words
    assert "Remote bridge · from 203.0.113.9" in words
    assert "carol ended a login account of bob locked" in words
    assert "alice signed in" in words and "usr_" not in words


async def test_rows_come_by_person_kind_outcome_and_day() -> None:
    house = household()
    browser = await owner(house)
    write(house, "user.signed_in", "user:usr_bob", outcome="refused")
    house.time += 2 * DAY
    write(house, "api_key.created", "user:usr_bob")
    write(house, "api_key.created", "local:0")
    write(house, "key.added", "local:0")
    before, today = house.time - DAY, house.time
    await browser.get("/account/access")
    await browser.sign_in()
    for query, found in (
        ("who=Bob", ["api_key.created", "user.signed_in"]),
        ("who=bob&kind=keys", ["api_key.created"]),
        ("who=local:0&kind=keys", ["api_key.created"]),
        ("outcome=refused&who=bob", ["user.signed_in"]),
        (f"since={_day(today)}&kind=keys", ["api_key.created", "api_key.created"]),
        (f"until={_day(before)}&kind=keys", []),
        (f"until={_day(before)}&who=bob", ["user.signed_in"]),
        ("who=nobody-of-that-name", []),
        ("who=usr_bob", []),
        ("who=%25&kind=no-such&outcome=no-such", []),
    ):
        await browser.get(f"{AUDIT}?{query}")
        assert events(browser) == found, query
    await browser.get(f"{AUDIT}?since=soon&who=bob")
    assert "soon was left out" in browser.words and len(events(browser)) == 2


async def test_what_is_looked_for_is_shown_again_no_longer_than_it_can_be() -> None:
    browser = await owner(household())
    await browser.get(f"{AUDIT}?who={'w' * 1000}&since={'s' * 1000}&until={'u' * 1000}")
    longest = [max(map(len, re.findall(f"{letter}{{5,}}", browser.text))) for letter in "wsu"]
    assert longest == [WHO_CHARACTERS, DAY_CHARACTERS, DAY_CHARACTERS]


def _day(at: int) -> str:
    from server.console.owner.terms_form import day_of

    return day_of(at)


async def test_a_long_trail_comes_page_by_page_each_row_once() -> None:
    house = household()
    for place in range(107):
        write(house, "api_key.used", "user:usr_bob", reason=f"use {place}.")
    browser, pages = await owner(house, f"{AUDIT}?kind=keys"), list[list[str]]()
    for _ in range(3):
        pages.append(re.findall(r"use (\d+)\.", browser.words))
        further = re.search(r'href="([^"]*at=[^"]*)"', browser.text)
        if further is None:
            break
        await browser.get(unescape(further[1]))
    assert [len(page) for page in pages] == [50, 50, 7]
    assert [use for page in pages for use in page] == [str(place) for place in reversed(range(107))]


@pytest.mark.parametrize(("further", "found"), [(9, True), (10, False)])
async def test_what_is_rare_is_looked_for_in_ten_stretches_and_then_on_request(
    further: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_search, "STRETCH", 1)
    house = household()
    browser = await owner(house)
    write(house, "policy.more", "local:0")
    for _ in range(further):
        write(house, "api_key.used", "user:usr_bob")
    await browser.get(f"{AUDIT}?kind=policy")
    assert events(browser) == ["policy.more"] * found
    assert ("further back there may be" in browser.words) is not found
    if not found:
        await browser.get(unescape(re.findall(r'href="([^"]*at=[^"]*)"', browser.text)[0]))
        assert events(browser) == ["policy.more"]


@pytest.mark.parametrize(("done_at", "words"), [(20, "All 20 rows"), (21, "The first 20 rows")])
async def test_a_check_goes_through_so_many_answers_and_says_where_there_are_more(
    done_at: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = 0

    async def verify(*_: object) -> dict[str, object]:
        nonlocal answers
        answers += 1
        return {"checked": 1, "at": answers, "broken": None, "done": answers == done_at, "head_lost": ""}

    monkeypatch.setattr(AuditAdmin, "verify", verify)
    browser = await owner(household(), AUDIT)
    await browser.submit(VERIFY)
    assert words in browser.words


@pytest.mark.parametrize(
    ("at", "understood"),
    [("9" * 18, True), ("9" * 19, False), ("9" * 5_000, False), ("2", True), ("-2", False), ("²", False)],
)
async def test_a_place_in_the_trail_is_a_number_that_a_row_can_have(at: str, understood: bool) -> None:
    house = household()
    write(house, "policy.more", "local:0")
    browser = await owner(house)
    page = await browser.get(f"{AUDIT}?at={quote(at)}")
    assert page.status == 200
    assert (f'href="{AUDIT}">The newest' in browser.text) is understood
    assert ("user.signed_in" in events(browser)) is (at != "2")


async def test_the_trail_is_checked_on_request_and_a_row_that_was_altered_is_named() -> None:
    house = household()
    browser = await owner(house, AUDIT)
    await browser.submit(VERIFY)
    assert re.search(r"All \d+ rows are as they were written", browser.words)
    house.store.db.execute("UPDATE audit SET actor = 'user:usr_bob' WHERE seq = 2")
    house.time += MINUTE
    await browser.submit(VERIFY)
    assert "The trail is not as it was written, at row 2" in browser.words


async def test_a_check_is_made_once_a_minute_and_what_it_came_to_stays_with_its_time() -> None:
    house = household()
    browser = await owner(house, AUDIT)
    looked = reads_of(house)
    await browser.submit(VERIFY)
    assert looked() > 0
    for _ in range(3):
        house.time += MINUTE // 4
        await browser.submit(VERIFY)
        assert "It is checked once a minute at most. All" in browser.words
        assert "Checked 21 Sep 2026" in browser.words and looked() == 0
    await browser.get(f"{AUDIT}?kind=keys")
    assert re.search(r"All \d+ rows are as they were written. Checked 21 Sep 2026", browser.words)
    house.time += MINUTE
    await browser.submit(VERIFY)
    assert looked() > 0 and "once a minute" not in browser.words
    house.time -= DAY  # somebody set the clock
    await browser.submit(VERIFY)
    assert looked() > 0


async def test_one_check_runs_at_a_time_and_one_that_is_given_up_is_none() -> None:
    house = household()
    browser, other = await owner(house, AUDIT), await owner(house, AUDIT)
    other.routed = browser.routed
    read, held, begun, go_on = house.store.read, list[str](), trio.Event(), trio.Event()

    async def read_slowly(job: Any) -> Any:
        if "walk" in repr(job) and not held:
            held.append("walk")
            begun.set()
            await go_on.wait()
        return await read(job)

    house.store.read = read_slowly  # pyright: ignore[reportAttributeAccessIssue]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browser.submit, VERIFY)
        await begun.wait()
        house.time += 2 * MINUTE
        await other.submit(VERIFY)
        assert "It is being checked already" in other.words
        nursery.cancel_scope.cancel()  # whoever asked has left
    await other.submit(VERIFY)
    assert "are as they were written" in other.words


def reads_of(house: House) -> Callable[[], int]:
    """How often the chain was walked since it was asked last."""
    read, walks = house.store.read, list[object]()

    async def counted(job: Any) -> Any:
        if "walk" in repr(job):
            walks.append(job)
        return await read(job)

    house.store.read = counted  # pyright: ignore[reportAttributeAccessIssue]

    def since() -> int:
        count = len(walks)
        walks.clear()
        return count

    return since


async def test_nobody_but_the_owner_reads_or_checks_it() -> None:
    house = household()
    alice, bob = await owner(house, AUDIT), await owner(house, AUDIT, name="bob")
    assert bob.page.status == 403 and "signed in" not in bob.words
    token = dict(alice.fields(VERIFY))["form_token"]
    assert (await bob.post(VERIFY, ("form_token", token))).status == 403
    assert (await alice.post(VERIFY, ("form_token", ""))).status == 403


async def test_what_a_stranger_has_put_into_a_row_is_text_and_nothing_else() -> None:
    house = household()
    write(
        house,
        "client.refused",
        "client:<script>",
        client_id="<script>",
        user_agent="<b>\u202e",
        reason="</small><i>",
    )
    browser = await owner(house, AUDIT)
    assert "<script>" not in browser.text and "<i>" not in browser.text and "\u202e" not in browser.text


def test_every_event_has_a_kind_and_one_without_words_is_still_told() -> None:
    listed = {event for kind in KINDS.values() for event in kind.events}
    assert all(event in listed or event.partition(".")[0] in listed for event in EVENTS)
    assert words_of("something.odd_happened") == "something: odd happened"


async def test_a_break_is_told_until_it_is_acknowledged_and_then_by_whom() -> None:
    house = household()
    browser = await owner(house)
    house.store.now(lambda db: db.execute("DELETE FROM meta WHERE key = 'audit_chain'"))
    write(house, "key.added", "local:0")
    await browser.get(AUDIT)
    assert 'class="note error"' in browser.text and "record altered" in browser.text
    admin = AuditAdmin(
        store=cast("Any", house.parts.store),
        clock=lambda: house.time,
        subkey=lambda _: AUDIT_KEY,
        committed_head=lambda: None,
        written_heads=lambda: (),
    )
    await admin.acknowledge({"note": "ticket 7"}, "local:0")
    await browser.get(AUDIT)
    assert 'class="note error"' not in browser.text
    assert "ticket 7" in browser.words and "root (at the machine)" in browser.words
