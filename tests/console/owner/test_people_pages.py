"""People in a browser: inviting, what somebody may, and the acts that change an account; only for an owner who was proven lately."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest

from auth.administration import guest_accounts
from auth.people import user_accounts
from tests.auth.browser_fakes import PASSPHRASE, Browser, House, header, live_sessions, location
from tests.auth.people_fakes import household, invited, let_in, revoked

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
CENTURY_DAYS = 36_600
PEOPLE, NEW = "/account/people", "/account/people/new"
BOB = f"{PEOPLE}/usr_bob"


async def owner(house: House, path: str = PEOPLE, name: str = "alice") -> Browser:
    browser = Browser(house)
    await browser.sign_in(name)
    await browser.get(path)
    return browser


def user(house: House, name: str) -> dict[str, Any]:
    return next(dict(row) for row in house.rows("users") if row["name"] == name)


def link_on(browser: Browser) -> str:
    """The path of the link that the page shows."""
    found = re.search(r"<textarea[^>]*>([^<]+)</textarea>", browser.text)
    assert found is not None, browser.words
    return urlsplit(unescape(found[1])).path


def date(house: House, days: int) -> str:
    from server.console.owner.terms_form import day_of

    return day_of(house.time + days * DAY)


# ---------------------------------------------------------------- the list


async def test_the_owner_sees_everybody_with_what_they_may_and_disables_and_enables_one() -> None:
    house = household()
    invited(house, "dora", scope="mcp:tools", tools="readonly", expires_at=house.time + 9 * DAY)
    let_in(house, "usr_bob")
    bob = await owner(house, name="bob")
    browser = await owner(house)
    assert "dora invited" in browser.words and "tools: readonly" in browser.words
    assert (
        "account until" in browser.words
        and "1 login" in browser.words
        and "alice enabled you" in browser.words
    )
    await browser.submit(f"{BOB}/disable")
    assert "bob is disabled. Everything it let in is paused." in browser.words
    assert user(house, "bob")["state"] == "disabled"
    page = await bob.get("/account/access")
    assert page.status == 403 and "This account is disabled" in bob.words
    await browser.submit(f"{BOB}/enable")
    assert "bob is enabled" in browser.words
    await bob.get("/account/access")
    assert "What has access" in bob.words, "the browser of somebody who was disabled goes on"


@pytest.mark.parametrize(("others", "pages"), [(49, [50]), (99, [50, 50]), (100, [50, 50, 1])])
async def test_people_come_page_by_page_each_once_and_can_be_looked_for(
    others: int, pages: list[int]
) -> None:
    house = House().owned()
    for number in range(others):
        house.add_user(f"usr_{number:03}", f"person-{number:03}")
    browser, seen = await owner(house), list[list[str]]()
    for _ in pages:
        seen.append(re.findall(rf'href="{PEOPLE}/(usr_[^"]+)"', browser.text))
        assert ('role="search"' in browser.text) is (len(pages) > 1)
        if further := re.search(r'href="([^"]*after=[^"]*)"', browser.text):
            await browser.get(unescape(further[1]))
        assert (further is not None) is (len(seen) < len(pages))
    assert [len(page) for page in seen] == pages
    assert len({name for page in seen for name in page}) == others + 1


async def test_a_name_is_looked_for_whole_or_in_part() -> None:
    house = House().owned()
    for number in range(80):
        house.add_user(f"usr_{number:03}", f"person-{number:03}")
    browser = await owner(house)
    await browser.get(f"{PEOPLE}?q=PERSON-07")
    assert len(re.findall(rf'href="{PEOPLE}/usr_', browser.text)) == 10
    await browser.get(f"{PEOPLE}?q=%25")
    assert "Nobody is called that" in browser.words
    assert 'role="search"' in browser.text


# ---------------------------------------------------------------- who may


PATHS = (PEOPLE, NEW, BOB)
ACTS = ("", "/disable", "/enable", "/lock", "/unlock", "/reset", "/resend", "/uninvite", "/remove")


@pytest.mark.parametrize("path", PATHS)
async def test_nobody_but_the_owner_sees_these_pages(path: str) -> None:
    house = household()
    browser = await owner(house, path, name="bob")
    assert browser.page.status == 403 and "This page is the owner’s" in browser.words
    assert "carol" not in browser.words
    page = await Browser(house).get(path, follow=False)
    assert (page.status, location(page)) == (
        303,
        f"/signin?next={NEW if path == NEW else PEOPLE}".replace(NEW, PEOPLE + "/new"),
    )


async def test_no_act_is_done_without_the_token_of_its_own_page_and_session() -> None:
    house = household()
    alice = await owner(house)
    stolen = dict(alice.fields(f"{BOB}/disable"))["form_token"]
    bob, stranger = await owner(house, name="bob"), Browser(house)
    before = house.store.db.database.dump()
    more = (
        ("name", "eve"),
        ("scope", "mcp"),
        ("tools", ""),
        ("until", ""),
        ("sure", "yes"),
        ("passphrase", PASSPHRASE),
    )
    for path in (NEW, *(BOB + act for act in ACTS)):
        for browser, token, status in (
            (alice, "", 403),
            (alice, dict(alice.fields("/signout"))["form_token"], 403),
            (bob, stolen, 403),
            (stranger, stolen, 303),
        ):
            sent = (("form_token", token), *more)
            assert (await browser.post(path, *sent, follow=False)).status == status, path
        assert (await alice.post(path, ("form_token", stolen), *more, site="same-site")).status == 403
        await alice.get(PEOPLE)
        await bob.get(PEOPLE)
    assert house.store.db.database.dump() == before


async def test_every_act_wants_a_proof_that_is_young() -> None:
    house = household()
    browser = await owner(house)
    house.time += 16 * MINUTE
    for act in ACTS[1:2]:
        await browser.get(PEOPLE)
        await browser.submit(f"{BOB}{act}")
        assert "Is it you?" in browser.words and "to disable bob’s account" in browser.words
    assert user(house, "bob")["state"] == "enabled"
    page = await browser.submit(f"{BOB}/disable", passphrase="not the right one at all")
    assert page.status == 400 and user(house, "bob")["state"] == "enabled"
    await browser.submit(f"{BOB}/disable", passphrase=PASSPHRASE)
    assert user(house, "bob")["state"] == "disabled"


async def test_an_owner_who_is_signed_out_between_the_proof_and_the_act_does_nothing() -> None:
    house = household()
    browser = await owner(house)
    write, gone = house.store.write, list[str]()

    async def sign_out_first(job: Any) -> Any:
        if not gone:  # another of their browsers ends this one, just now
            gone.append(live_sessions(house)[0]["id_hash"])
            house.store.db.execute("DELETE FROM browser_sessions")
        return await write(job)

    house.store.write = sign_out_first  # pyright: ignore[reportAttributeAccessIssue]
    page = await browser.submit(f"{BOB}/disable")
    assert gone and page.status == 403 and user(house, "bob")["state"] == "enabled"
    assert house.audited("user.disabled") == []


# ---------------------------------------------------------------- inviting


async def test_inviting_somebody_shows_a_link_once_with_which_they_come_in_as_far_as_was_said() -> None:
    house = household()
    browser = await owner(house, NEW)
    await browser.submit(
        NEW,
        name="Dora",
        may="ticked",
        scope=("mcp:tools:read",),
        tools="readonly",
        until=date(house, 30),
        wait="7",
    )
    link = link_on(browser)
    assert "Send this to dora" in browser.words and "It works once" in browser.words
    dora = user(house, "dora")
    assert (dora["state"], dora["scope"], dora["tools"]) == ("invited", "mcp:tools:read", "readonly")
    assert 29 * DAY <= dora["expires_at"] - house.time <= 30 * DAY and dora["expires_at"] % DAY == 0
    assert dora["invited_by"] == house.owner_id
    row = [row for row in house.rows("audit") if row["event"] == "user.invited"][-1]
    assert row["actor"] == f"user:{house.owner_id}"
    await browser.get(PEOPLE)
    assert link not in browser.text, "shown once"

    guest = Browser(house)
    await guest.get(link)
    assert "alice invites you" in guest.words
    await guest.submit(link, passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    assert user(house, "dora")["state"] == "enabled"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": ""}, "Choose a name"),
        ({"name": "no spaces"}, "made of letters"),
        ({"name": "bob"}, "There is somebody called bob already"),
        ({"scope": ()}, "one thing ticked"),
        ({"scope": ("made:up",)}, "some of mcp"),
        ({"scope": ("tools",)}, "did you mean mcp:tools"),
        ({"tools": "no-such-tool"}, "group no-such-tool"),
        ({"tools": "a b"}, "list of words"),
        ({"tools": "x\u202e"}, "One line"),
        ({"tools": "x" * 1_000}, "list of words"),
        ({"tools": "x" * 1_001}, "One line"),
        ({"until": "2001-01-01"}, "has begun already"),
        ({"until": "soon"}, "no day that"),
        ({"until": "9999-12-31"}, "no day that"),
    ],
)
async def test_what_is_wrong_with_an_invitation_is_said_at_its_field_and_what_was_typed_stays(
    wrong: dict[str, Any], sentence: str
) -> None:
    house = household()
    browser = await owner(house, NEW)
    typed: dict[str, Any] = {
        "name": "eve",
        "may": "ticked",
        "scope": ("mcp:tools",),
        "tools": "search",
        "until": date(house, 9),
    }
    page = await browser.submit(NEW, {**typed, **wrong})
    assert page.status == 400 and sentence.lower() in browser.words.lower()
    assert browser.text.partition("<main>")[2].count("aria-invalid") == ("scope" not in wrong)
    left = {**typed, **wrong}
    if str(left["tools"]).isprintable():
        assert f'value="{left["tools"]}"' in browser.text
    assert f'value="{left["until"]}"' in browser.text
    assert all(row["name"] != "eve" for row in house.rows("users"))
    assert house.rows("one_time_links") == []


async def test_a_name_that_is_too_long_is_shown_again_no_longer_than_it_is_read() -> None:
    browser = await owner(household(), NEW)
    page = await browser.submit(NEW, {"name": "n" * 1000, "may": "change"})
    assert page.status == 400
    assert max(map(len, re.findall("n{5,}", browser.text))) == user_accounts.NAME_TYPED


@pytest.mark.parametrize(("wait", "days"), [("1", 1), ("30", 30), ("2", 3), ("x", 3)])
async def test_a_link_works_for_as_long_as_was_chosen_or_else_for_the_usual_time(
    wait: str, days: int
) -> None:
    house = household()
    browser = await owner(house, NEW)
    await browser.submit(NEW, name="dora", wait=wait)
    assert house.rows("one_time_links")[-1]["expires_at"] == house.time + days * DAY


@pytest.mark.parametrize(("state", "told"), [("enabled", "over"), ("disabled", "disabled")])
async def test_an_account_whose_time_has_come_is_told_as_over_unless_more_is_wrong(
    state: str, told: str
) -> None:
    house = household()
    sql = "UPDATE users SET state = ?, expires_at = ? WHERE name = 'bob'"
    house.store.db.execute(sql, state, house.time)
    browser = await owner(house)
    assert re.findall(r"<bdi>bob</bdi>.*?<span class=\"tag[^>]*>(\w+)<", browser.text, re.DOTALL) == [told]


@pytest.mark.parametrize(
    ("days", "problem"),
    [(0, "has begun already"), (1, ""), (CENTURY_DAYS, ""), (CENTURY_DAYS + 1, "no day that")],
)
async def test_an_account_ends_between_tomorrow_and_a_century_from_now(days: int, problem: str) -> None:
    house = household()
    house.time += -house.time % DAY  # at midnight, to the moment
    browser = await owner(house, NEW)
    page = await browser.submit(NEW, name="dora", until=date(house, days))
    assert (page.status, problem in browser.words) == (400 if problem else 200, True)
    if not problem:
        assert user(house, "dora")["expires_at"] == house.time + days * DAY


async def test_all_that_is_wrong_with_an_invitation_is_said_at_once() -> None:
    house = household()
    browser = await owner(house, NEW)
    typed = {
        "name": "no spaces",
        "may": "ticked",
        "scope": ("mcp:tools",),
        "tools": "no-such-tool",
        "until": "soon",
    }
    page = await browser.submit(NEW, typed)
    assert page.status == 400
    assert browser.text.partition("<main>")[2].count("aria-invalid") == 3


# ---------------------------------------------------------------- one person


async def test_what_somebody_may_is_changed_at_once_and_what_is_left_as_it_is_stays() -> None:
    house = household()
    ends = house.time + 9 * DAY + 12_345  # in the middle of a day, as the terminal sets it
    house.store.db.execute("UPDATE users SET expires_at = ? WHERE name = 'bob'", ends)
    browser = await owner(house, BOB)
    await browser.submit(BOB, may="ticked", scope=("mcp:tools:read", "mcp:tools:write"), tools="readonly")
    assert "What bob may do was changed" in browser.words
    bob = user(house, "bob")
    assert (bob["scope"], bob["tools"], bob["expires_at"]) == (
        "mcp:tools:read mcp:tools:write",
        "readonly",
        ends,
    )
    assert house.audited("user.changed") == ["ok"]
    await browser.get(BOB)
    await browser.submit(BOB, may="everything", tools="", until="")
    bob = user(house, "bob")
    assert (bob["scope"], bob["tools"], bob["expires_at"]) == ("*", "", None)


async def test_the_only_owner_has_no_end_and_cannot_be_switched_off() -> None:
    house = household()
    me = f"{PEOPLE}/{house.owner_id}"
    browser = await owner(house, me)
    assert 'name="until"' not in browser.text and f"{me}/disable" not in browser.text
    token = dict(browser.fields(me))["form_token"]
    for act in ("disable", "lock", "remove"):
        page = await browser.post(f"{me}/{act}", ("form_token", token), ("sure", "yes"))
        assert page.status == 409 and "is the only owner" in browser.words
    await browser.get(me)
    page = await browser.submit(me, until=date(house, 3))
    assert 'id="scope-wrong"' not in browser.text
    assert page.status == 400 and user(house, "alice")["expires_at"] is None


async def test_of_two_owners_one_can_disable_the_other_and_not_themselves() -> None:
    house = household()
    house.store.db.execute("UPDATE users SET role = 'owner' WHERE name = 'bob'")
    browser = await owner(house)
    assert f"{BOB}/disable" in browser.text
    assert f"{house.owner_id}/disable" not in browser.text


async def test_an_invitation_is_made_anew_and_ended() -> None:
    house = household()
    old = invited(house, "dora", scope="mcp:tools")
    dora = f"{PEOPLE}/{user(house, 'dora')['id']}"
    browser = await owner(house, dora)
    await browser.submit(f"{dora}/resend")
    link = link_on(browser)
    guest = Browser(house)
    assert link != old and (await guest.get(old)).status == 410 and (await guest.get(link)).status == 200
    await browser.get(dora)
    await browser.submit(f"{dora}/uninvite")
    assert "The invitation of dora was ended" in browser.words
    assert (await guest.get(link)).status == 410
    assert all(row["name"] != "dora" for row in house.rows("users"))


@pytest.mark.parametrize("act", ["uninvite", "resend"])
async def test_an_invitation_that_was_taken_up_meanwhile_is_none_to_end_or_to_send_again(act: str) -> None:
    house = household()
    bob = dict(user(house, "bob"))
    browser = await owner(house, BOB)
    token = dict(browser.fields(f"{BOB}/reset"))["form_token"]
    page = await browser.post(f"{BOB}/{act}", ("form_token", token))
    assert page.status == 409 and "bob is enabled by now" in browser.words
    assert user(house, "bob") == bob


async def test_nobody_makes_a_reset_link_for_themselves() -> None:
    house = household()
    alice = f"{PEOPLE}/{house.owner_id}"
    browser = await owner(house, alice)
    assert "Make a reset link" not in browser.words
    await browser.get(BOB)
    token = dict(browser.fields(f"{BOB}/reset"))["form_token"]
    page = await browser.post(f"{alice}/reset", ("form_token", token))
    assert page.status == 409 and "This is your own account" in browser.words


async def test_a_reset_link_is_shown_once_and_sets_a_new_passphrase() -> None:
    house = household()
    browser = await owner(house, BOB)
    await browser.submit(f"{BOB}/reset")
    link = link_on(browser)
    assert "for 30 minutes" in browser.words
    bob = Browser(house)
    await bob.get(link)
    await bob.submit(link, passphrase="a new one entirely", passphrase_again="a new one entirely")
    assert user(house, "bob")["passphrase_hash"] == "plain:a new one entirely"


async def test_locking_is_asked_about_first_and_unlocking_shows_the_way_in() -> None:
    house = household()
    login = let_in(house, "usr_bob")
    browser = await owner(house, BOB)
    await browser.submit(f"{BOB}/lock")
    assert "Lock bob?" in browser.words and user(house, "bob")["state"] == "enabled"
    await browser.submit(f"{BOB}/lock")
    assert "bob is locked" in browser.words and revoked(house) == {login}
    assert user(house, "bob")["passphrase_hash"] is None
    await browser.get(BOB)
    assert 'name="tools"' not in browser.text
    await browser.submit(f"{BOB}/unlock")
    assert link_on(browser).startswith("/reset/") and user(house, "bob")["state"] == "enabled"


async def test_removing_is_asked_about_first_and_names_who_is_gone() -> None:
    house = household()
    browser = await owner(house, BOB)
    await browser.submit(f"{BOB}/remove")
    assert "Remove bob?" in browser.words
    await browser.submit(f"{BOB}/remove")
    assert "bob was removed" in browser.words and all(row["name"] != "bob" for row in house.rows("users"))
    assert (await browser.get(BOB)).status == 404 and "Nobody there" in browser.words


async def test_an_act_that_does_not_fit_the_account_any_more_changes_nothing_and_says_why() -> None:
    house = household()
    browser = await owner(house, BOB)
    token = dict(browser.fields(f"{BOB}/disable"))["form_token"]
    await browser.post(f"{BOB}/unlock", ("form_token", token))
    assert browser.page.status == 409 and "bob is not locked and cannot be unlocked" in browser.words
    assert (await browser.post(f"{BOB}/promote", ("form_token", token))).status == 403
    page = await browser.post(f"{PEOPLE}/usr_nobody/disable", ("form_token", token), follow=False)
    assert location(page) == f"{PEOPLE}?did=gone"


async def test_a_page_with_a_link_is_kept_by_nobody_and_runs_no_script_but_its_own() -> None:
    browser = await owner(household(), BOB)
    page = await browser.submit(f"{BOB}/reset")
    assert header(page, "cache-control") == "no-store"
    nonce = re.search(r"script-src 'nonce-([^']+)'", header(page, "content-security-policy") or "")
    assert nonce is not None
    assert set(re.findall(r'<script nonce="([^"]+)"', browser.text)) == {nonce[1]}


def test_everybody_listed_is_found_by_name_too() -> None:
    house = household()
    found = house.store.now(lambda db: guest_accounts.listing(db, house.time, like="AR"))
    assert [person.user.name for person in found] == ["carol"]
