"""The account page: what has access, browsers, consents, passphrase, people; and who may end what (auth/pages/account/)."""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from typing import Literal
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from auth.administration import guest_accounts as people
from auth.administration.guest_accounts import GuestTerms
from auth.clients.client_registry import ClientRegistration
from auth.clients.client_registry import add as add_client
from auth.grants import last_calls
from auth.pages.account.login_section import SHOWN
from auth.people.browser_names import browser_name
from auth.values.identity_model import PrincipalKind
from tests.auth.browser_fakes import (
    ELSEWHERE,
    HOME,
    PASSPHRASE,
    Browser,
    House,
    attribute,
    header,
    live_sessions,
    location,
)
from tests.auth.people_fakes import household, let_in, revoked

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NEW = "seven quiet otters swimming"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0"

END = "/account/logins/end"
BROWSERS = "/account/browsers/end"
FORGET = "/account/consents/forget"
DENY = "/account/logins/deny"
ACCESS, YOU = "/account/access", "/account/you"
PASSPHRASES = "/account/passphrase"


async def signed_in(house: House, name: str = "alice", *, ip: str = HOME) -> Browser:
    browser = Browser(house, ip=ip, user_agent=FIREFOX)
    await browser.sign_in(name)
    await browser.get(ACCESS)
    return browser


def token_of(browser: Browser, action: str) -> tuple[str, str]:
    return "form_token", dict(browser.fields(action))["form_token"]


# ---------------------------------------------------------------- what has access


async def test_a_person_sees_their_own_logins_in_words_and_ends_one_at_once() -> None:
    house = household()
    house.time += DAY
    mine = let_in(house, "usr_bob", ip=ELSEWHERE, scope="mcp:tools")
    let_in(house, "usr_carol", name="Carol's own")
    browser = await signed_in(house, "bob")
    assert "no call yet" in browser.words  # it was given tokens, which is no call
    house.store.now(partial(last_calls.note, called={mine: house.time}))
    house.time += 3 * HOUR
    browser = await signed_in(house, "bob")
    for words in (
        "Ostiary on rowan",
        "unverified",
        "with a code",
        "rowan.lan",
        ELSEWHERE,
        "last call 3 hours ago",
    ):
        assert words in browser.words
    assert '<small class="may">List and call' in browser.text
    assert "Carol" not in browser.words and "People" not in browser.words
    await browser.submit(END)
    assert "Your login of Ostiary on rowan on rowan.lan was ended" in browser.words
    assert revoked(house) == {mine}
    assert ("grant", mine) in {(row["kind"], row["entity_id"]) for row in house.rows("changes")}
    row = [row for row in house.rows("audit") if row["event"] == "grant.revoked"][-1]
    assert (row["actor"], row["grant_id"]) == ("user:usr_bob", mine)


async def test_the_last_address_is_shown_beside_the_first() -> None:
    house = household()
    let_in(house, "usr_bob", ip=ELSEWHERE)
    house.store.db.execute("UPDATE grants SET last_ip = '192.0.2.44'")
    browser = await signed_in(house, "bob")
    assert f"from {ELSEWHERE} , last 192.0.2.44" in browser.words


async def test_nothing_logged_in_shows_how_to_log_in() -> None:
    browser = await signed_in(household(), "bob")
    assert "Nothing of yours" in browser.words
    assert "ostiary login http://localhost:8420/mcp" in browser.words


async def test_what_a_program_calls_itself_is_text_and_nothing_else() -> None:
    house = household()
    let_in(house, "usr_bob", name='<b onclick="x">\u202eevil', hostname="</small><script>")
    browser = await signed_in(house, "bob")
    assert "<script>" not in browser.text and "<b onclick" not in browser.text
    assert "\u202e" not in browser.text


async def test_the_owner_sees_everybodys_by_person_and_machines_apart() -> None:
    house = household()
    added = house.store.now(
        partial(
            add_client,
            registration=ClientRegistration(
                name="Nightly", client_id="ci", auth_method="client_secret_basic"
            ),
            seed=bytes(32),
            by="local:0",
            now=house.time,
        )
    )
    assert added is not None
    let_in(house, house.owner_id, name="Mine")
    let_in(house, "usr_bob", name="Bobs")
    let_in(house, "ci", name="", client=added.client, how="client_credentials", kind=PrincipalKind.CLIENT)
    browser = await signed_in(house)
    words = browser.words
    places = [words.index(part) for part in ("Yours", "Mine", "Bobs", "Machines with credentials", "Nightly")]
    assert places == sorted(places)
    assert "Nightly verified" in words


async def test_nobody_but_the_owner_ends_somebody_elses_login_and_the_answer_tells_nothing() -> None:
    house = household()
    theirs = let_in(house, "usr_carol")
    let_in(house, "usr_bob")
    browser = await signed_in(house, "bob")
    token = token_of(browser, END)
    answers = set[tuple[int, str, str]]()
    for login in (theirs, "grt_nothing", "", "x" * 2_000):
        page = await browser.post(END, token, ("login", login), follow=False)
        answers.add((page.status, location(page), page.body.decode()))
    assert answers == {(303, "/account/access?did=gone", "")}
    assert revoked(house) == set()


async def test_a_machine_whose_client_id_is_somebodys_user_id_is_not_theirs() -> None:
    house = household()
    added = house.store.now(
        partial(
            add_client,
            registration=ClientRegistration(
                name="Mimic", client_id="usr_bob", auth_method="client_secret_basic"
            ),
            seed=bytes(32),
            by="local:0",
            now=house.time,
        )
    )
    assert added is not None
    grant = let_in(house, "usr_bob", name="", client=added.client, kind=PrincipalKind.CLIENT)
    let_in(house, "usr_bob")
    browser = await signed_in(house, "bob")
    assert "Mimic" not in browser.words
    await browser.post(END, token_of(browser, END), ("login", grant))
    assert revoked(house) == set()


async def test_the_owner_ends_anybodys_login_after_a_fresh_proof_only() -> None:
    house = household()
    theirs = let_in(house, "usr_bob")
    browser = await signed_in(house)
    house.time += 15 * MINUTE + 1
    await browser.get(ACCESS)
    await browser.submit(END)
    assert "Is it you?" in browser.words
    assert revoked(house) == set()
    page = await browser.submit(END, passphrase="not the right one at all")
    assert page.status == 400 and "not your passphrase" in browser.words
    assert revoked(house) == set()
    await browser.submit(END, passphrase=PASSPHRASE)
    assert revoked(house) == {theirs}
    assert "bob’s login of Ostiary on rowan on rowan.lan was ended" in browser.words
    assert house.audited("user.proven_again") == ["refused", "ok"]


async def test_ending_ones_own_login_needs_no_fresh_proof() -> None:
    house = household()
    mine = let_in(house, house.owner_id)
    browser = await signed_in(house)
    house.time += 6 * HOUR
    await browser.get(ACCESS)
    await browser.submit(END)
    assert revoked(house) == {mine}


async def test_proofs_are_throttled_like_sign_ins() -> None:
    house = household()
    let_in(house, "usr_bob")
    browser = await signed_in(house)
    house.time += HOUR
    await browser.get(ACCESS)
    await browser.submit(END)
    fields = [field for field in browser.fields(END) if field[0] != "passphrase"]
    statuses: list[int] = []
    for place in range(7):
        page = await browser.post(END, *fields, ("passphrase", f"a wrong passphrase {place}"))
        statuses.append(page.status)
        house.time += MINUTE
    assert statuses == [400] * 5 + [429] * 2
    assert (await browser.post(END, *fields, ("passphrase", PASSPHRASE))).status == 429
    assert revoked(house) == set()


async def test_logins_come_page_by_page_each_once_and_can_be_looked_for() -> None:
    house = household()
    for place in range(2 * SHOWN + 5):
        house.time += 1_000 * (place % 3)  # some in the same millisecond
        let_in(house, "usr_bob", name=f"program {place}", hostname=f"rowan-{place}")
    let_in(house, "usr_carol", name="Carol's own")
    browser = await signed_in(house)
    seen: list[str] = []
    assert (
        f"Shown are the {SHOWN} that were used last; a link below them leads to the others." in browser.words
    )
    for _ in range(4):
        seen += re.findall(r'name="login" value="([^"]+)"', browser.text)
        older = re.search(r'href="([^"]*before=[^"]*)#logins"', browser.text)
        if older is None:
            break
        await browser.get(unescape(older[1]))
    assert len(seen) == len(set(seen)) == 2 * SHOWN + 6
    assert "Those used last" in browser.words
    assert "Shown are 6 that were used earlier. Back to those used last" in browser.words

    await browser.get(f"{ACCESS}?q=ROWAN-64")
    assert re.findall(r"program \d+", browser.words) == ["program 64"]
    await browser.get(f"{ACCESS}?q=carol")
    assert browser.text.count(f'action="{END}"') == 1 and "Carol&#39;s own" in browser.text
    await browser.get(f"{ACCESS}?q=%25")
    assert "No login matches" in browser.words, "nothing in it is a pattern"
    bob = await signed_in(house, "bob")
    await bob.get(f"{ACCESS}?q=carol")
    assert "No login matches" in bob.words, "nobody looks for what is somebody else's"


@pytest.mark.parametrize("place", ["x", "1", ".", "-1.x", "9" * 40 + ".x", "1." + "x" * 500, "²."])
async def test_a_made_up_place_in_the_list_is_no_trouble(place: str) -> None:
    house = household()
    let_in(house, "usr_bob")
    browser = await signed_in(house, "bob")
    assert (await browser.get(f"{ACCESS}?before={quote(place)}&keys={quote(place)}")).status == 200


async def test_words_that_somebody_else_put_into_the_address_are_not_shown() -> None:
    house = household()
    let_in(house, "usr_bob")
    browser, other = await signed_in(house, "bob"), await signed_in(house, "bob")
    page = await browser.submit(END, follow=False)
    told = location(page)
    await browser.get(told)
    assert "Your login of Ostiary on rowan" in browser.words
    await other.get(told)
    assert "That login was ended" in other.words and "Your login" not in other.words
    await browser.get(told.replace("Your", "Her"))
    assert "That login was ended" in browser.words and "Her" not in browser.words


async def test_a_login_that_is_paused_says_why() -> None:
    house = household()
    let_in(house, "usr_bob")
    house.store.db.execute("UPDATE users SET state = 'disabled' WHERE id = 'usr_bob'")
    let_in(house, "usr_carol")
    house.store.db.execute("UPDATE users SET expires_at = ? WHERE id = 'usr_carol'", house.time)
    browser = await signed_in(house)
    assert "paused: the account is disabled" in browser.words
    assert "paused: the account is over" in browser.words


# ---------------------------------------------------------------- every form


@pytest.mark.parametrize("path", [END, BROWSERS, FORGET, PASSPHRASES])
async def test_a_form_without_its_token_from_another_site_or_of_another_form_does_nothing(path: str) -> None:
    house = household()
    let_in(house, house.owner_id)
    browser = await signed_in(house)
    before = house.store.db.database.dump()
    token = dict(browser.fields("/signout"))["form_token"]
    everything = (
        ("login", house.rows("grants")[0]["id"]),
        ("browser", "others"),
        ("person", "bob"),
        ("verb", "disable"),
        ("passphrase", PASSPHRASE),
        ("new_passphrase", NEW),
        ("new_passphrase_again", NEW),
    )
    for sent in (everything, (*everything, ("form_token", token)), (*everything, ("form_token", "0" * 64))):
        assert (await browser.post(path, *sent)).status == 403
    assert (await browser.post(path, *everything, site="same-site")).status == 403
    assert house.store.db.database.dump() == before


@pytest.mark.parametrize("path", [END, BROWSERS, FORGET, PASSPHRASES])
async def test_who_is_not_signed_in_is_led_to_sign_in(path: str) -> None:
    house = household()
    page = await Browser(house).post(path, ("form_token", "x"), follow=False)
    assert (page.status, location(page)) == (303, f"/signin?next={YOU if path == PASSPHRASES else ACCESS}")


@pytest.mark.parametrize("path", [END, BROWSERS, FORGET])
async def test_a_get_of_an_act_is_refused(path: str) -> None:
    browser = await signed_in(household())
    page = await browser.get(path)
    assert (page.status, header(page, "allow")) == (405, "POST")


async def test_looking_at_the_page_writes_nothing() -> None:
    house = household()
    let_in(house, "usr_bob")
    browser = await signed_in(house)
    writes = house.store.writes
    await browser.get(ACCESS)
    await browser.get("/account/access?did=login-ended")
    await browser.get("/account/access?did=<script>")
    assert house.store.writes == writes
    assert "<script>" not in browser.text


# ---------------------------------------------------------------- browsers


async def test_the_browsers_of_a_person_are_listed_and_the_others_can_be_ended() -> None:
    house = household()
    there = await signed_in(house, "bob", ip=ELSEWHERE)
    house.time += 2 * HOUR
    here = await signed_in(house, "bob")
    assert "Firefox on Linux this browser" in here.words
    assert ELSEWHERE in here.words and "2 hours ago" in here.words
    await here.submit(BROWSERS)
    assert "Firefox on Linux was signed out" in here.words
    assert (await there.get(ACCESS, follow=False)).status == 303
    assert (await here.get(ACCESS, follow=False)).status == 200
    assert house.audited("user.browser_ended") == ["ok"]


async def test_all_others_are_ended_at_once_and_this_one_stays() -> None:
    house = household()
    others = [await signed_in(house, "bob") for _ in range(3)]
    carol = await signed_in(house, "carol")
    here = await signed_in(house, "bob")
    await here.submit(f"{BROWSERS}#others")
    assert [(await each.get(ACCESS, follow=False)).status for each in (*others, carol, here)] == [
        303,
        303,
        303,
        200,
        200,
    ]


async def test_nobody_ends_a_browser_of_somebody_else_nor_with_half_an_id() -> None:
    house = household()
    carol = await signed_in(house, "carol")
    theirs = live_sessions(house)[0]["id_hash"]
    await signed_in(house, "bob")
    bob = await signed_in(house, "bob")
    token = token_of(bob, BROWSERS)
    for which in (theirs[:24], theirs, theirs[:1], "", "%", "_" * 24):
        page = await bob.post(BROWSERS, token, ("browser", which), follow=False)
        assert location(page) == "/account/access?did=gone"
    assert (await carol.get(ACCESS, follow=False)).status == 200
    assert len(live_sessions(house)) == 3


async def test_no_cookie_and_no_whole_hash_of_one_is_on_the_page() -> None:
    house = household()
    await signed_in(house, "bob")
    browser = await signed_in(house, "bob")
    for row in live_sessions(house):
        assert row["id_hash"] not in browser.text
    (cookie,) = browser.jar.values()
    assert cookie not in browser.text


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Mobile/15E148 Safari/604.1", "Safari on an iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0", "Edge on Windows"),
        ("Mozilla/5.0 (Linux; Android 16) Chrome/140.0.0.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.9", "curl/8.9"),
        ("", "A browser"),
    ],
)  # fmt: skip
def test_a_browser_is_named_in_a_few_words(user_agent: str, words: str) -> None:
    assert browser_name(user_agent) == words


# ---------------------------------------------------------------- consents


def agree(house: House, user_id: str, host: str = "http://127.0.0.1") -> None:
    house.store.db.execute(
        "INSERT INTO consents (user_id, client_id, redirect_host, server, scope, client_hash, created_at, expires_at)"
        " VALUES (?, ?, ?, 'agent', 'mcp:tools', 'h', ?, ?)",
        user_id,
        house.registered.id,
        host,
        house.time,
        house.time + 90 * DAY,
    )


async def test_a_consent_is_listed_and_can_be_forgotten_and_only_ones_own() -> None:
    house = household()
    agree(house, "usr_bob")
    agree(house, "usr_carol")
    browser = await signed_in(house, "bob")
    assert "What you agreed to" in browser.words and "Remote bridge" in browser.words
    await browser.submit(FORGET)
    assert "Remote bridge has to ask you again" in browser.words
    assert [row["user_id"] for row in house.rows("consents")] == ["usr_carol"]
    assert "What you agreed to" not in browser.words
    assert house.audited("consent.forgotten") == ["ok"]


async def test_a_consent_that_ran_out_is_not_listed() -> None:
    house = household()
    agree(house, "usr_bob")
    house.time += 90 * DAY
    assert "What you agreed to" not in (await signed_in(house, "bob")).words


# ---------------------------------------------------------------- the passphrase


async def change(browser: Browser, present: str = PASSPHRASE, new: str = NEW, again: str = "") -> None:
    await browser.get(PASSPHRASES)
    await browser.submit(
        PASSPHRASES, passphrase=present, new_passphrase=new, new_passphrase_again=again or new
    )


async def test_changing_the_passphrase_ends_every_other_browser_and_renews_the_cookie() -> None:
    house = household()
    other = await signed_in(house, "bob")
    login = let_in(house, "usr_bob")
    browser = await signed_in(house, "bob")
    before = dict(browser.jar)
    await change(browser)
    assert "Your passphrase was changed" in browser.words
    assert browser.jar != before
    assert (await other.get(ACCESS, follow=False)).status == 303
    assert login not in revoked(house), "programs stay logged in"
    await other.sign_in("bob", NEW)
    assert "24 hours" in other.words
    assert house.audited("user.passphrase_changed") == ["ok"]


@pytest.mark.parametrize(
    ("present", "new", "again", "sentence", "field"),
    [
        ("not the right one at all", NEW, NEW, "not your present passphrase", "passphrase"),
        ("", NEW, NEW, "not your present passphrase", "passphrase"),
        (PASSPHRASE, "short", "short", "at least 12", "new_passphrase"),
        (PASSPHRASE, NEW, NEW + "!", "differ", "new_passphrase_again"),
    ],
)
async def test_a_passphrase_is_not_changed_for_a_wrong_present_one_or_an_unfit_new_one(
    present: str, new: str, again: str, sentence: str, field: str
) -> None:
    house = household()
    browser = await signed_in(house, "bob")
    await change(browser, present, new, again)
    assert browser.page.status == 400 and sentence in browser.words
    assert re.findall(
        r'<input id="(\w+)"[^>]*aria-describedby="([^" ]+)[^>]*aria-invalid="true" autofocus', browser.text
    ) == [(field, f"{field}-wrong")]
    assert (
        browser.text.count(f'<p class="wrong" id="{field}-wrong">')
        == browser.text.count('class="wrong"')
        == 1
    )
    assert (
        browser.text.count('<div class="note error" role="alert">') == 1
        and "Nothing has been changed yet." in browser.words
    )
    assert NEW not in browser.text and PASSPHRASE not in browser.text
    assert house.hashed == 0


async def test_wrong_present_passphrases_close_the_account_like_any_guess() -> None:
    house = household()
    browser = await signed_in(house, "bob")
    for _ in range(5):
        await change(browser, "not the right one at all")
        house.time += MINUTE
    await change(browser)
    assert browser.page.status == 429
    assert house.hashed == 0


# ---------------------------------------------------------------- an account that ends


async def test_an_account_that_ends_is_out_at_that_millisecond_and_its_page_says_so() -> None:
    house = household()
    house.store.now(
        partial(
            people.change,
            name="bob",
            terms=GuestTerms(expires_at=house.time + HOUR),
            by="local:0",
            now=house.time,
        )
    )
    browser = await signed_in(house, "bob")
    await browser.get(YOU)
    assert "Open until" in browser.words
    house.time += HOUR - 1
    assert (await browser.get(ACCESS)).status == 200
    house.time += 1
    page = await browser.get(ACCESS)
    assert page.status == 403 and "This account has ended" in browser.words
    assert "Sign out" not in browser.words
    assert (await browser.get("/device", follow=False)).status == 303
    await browser.sign_in("bob")
    assert "do not go together" in browser.words


async def test_a_stranger_with_a_made_up_cookie_is_told_nothing() -> None:
    house = household()
    house.store.db.execute("UPDATE users SET state = 'disabled' WHERE id = 'usr_bob'")
    browser = Browser(house)
    browser.jar["ostiary"] = "A" * 43
    page = await browser.get(ACCESS, follow=False)
    assert (page.status, location(page)) == (303, f"/signin?next={ACCESS}")


# ---------------------------------------------------------------- where one can go


def places(browser: Browser) -> list[tuple[str, str, str]]:
    """The links in the head: path, words, and which of them is this page."""
    head = browser.text.partition("<main>")[0].partition("<nav")[2]
    return re.findall(r'<a href="([^"]+)"(?: aria-current="(\w+)")?>([^<]+)</a>', head)


async def test_every_page_of_a_signed_in_person_leads_to_all_others_and_out() -> None:
    house = household()
    browser = await signed_in(house)
    for path in ("/device", "/welcome", ACCESS, YOU, PASSPHRASES):
        await browser.get(path)
        assert [(path, words) for path, _, words in places(browser)] == [
            ("/account", "Overview"),
            (ACCESS, "Access"),
            ("/account/people", "People"),
            (YOU, "You"),
        ]
        assert attribute(browser.text.partition("<main>")[0], "action")


@pytest.mark.parametrize(
    ("path", "current"),
    [
        (ACCESS, ("Access", "page")),
        ("/device", ("Access", "true")),
        (YOU, ("You", "page")),
        (PASSPHRASES, ("You", "true")),
        ("/account/people", ("People", "page")),
        ("/account/people/new", ("People", "true")),
    ],
)
async def test_the_page_that_one_is_on_is_marked(path: str, current: tuple[str, str]) -> None:
    browser = await signed_in(household())
    await browser.get(path)
    assert [(words, mark) for _, mark, words in places(browser) if mark] == [current]


@pytest.mark.parametrize(
    ("tried_by", "owner", "other"),
    [("", False, False), ("owners", True, False), ("people", True, True)],
)
async def test_who_may_try_tools_out_is_led_there_and_only_an_owner_to_people(
    tried_by: Literal["", "owners", "people"], owner: bool, other: bool
) -> None:
    house = household()
    house.parts = replace(house.parts, site=replace(house.parts.site, tried_by=tried_by))
    for name, tries in (("alice", owner), ("bob", other)):
        words = {words for _, _, words in places(await signed_in(house, name))}
        assert ("Try" in words, "People" in words) == (tries, name == "alice")


async def test_nobody_who_is_not_signed_in_sees_where_others_can_go() -> None:
    browser = Browser(household())
    await browser.get("/signin")
    assert "<nav" not in browser.text


# ---------------------------------------------------------------- devices that wait


async def test_the_owner_sees_who_waits_and_turns_them_away_and_nobody_else_does() -> None:
    house = household()
    house.ask(ip=ELSEWHERE, client_name="Claude Code", hostname="cedar")
    house.time += MINUTE
    house.ask(client_name="Ostiary", hostname="rowan")
    bob = await signed_in(house, "bob")
    assert "Claude Code" not in bob.words and "The code that it shows" in bob.words
    browser = await signed_in(house)
    assert "2 devices are waiting" in browser.words and "on cedar , from " + ELSEWHERE in browser.words
    assert browser.words.count("not on your network") == 1
    await browser.submit(DENY)
    assert "Claude Code on cedar was not let in" in browser.words
    assert [row["state"] for row in house.rows("device_codes")] == ["denied", "pending"]
    assert house.audited("device.denied") == ["ok"]

    stolen, waits = token_of(browser, DENY), house.device_row()["id"]
    assert (await bob.post(DENY, stolen, ("request", waits))).status == 403
    await bob.get(ACCESS)
    assert (await bob.post(DENY, token_of(bob, "/device"), ("request", waits))).status == 403
    assert house.device_row()["state"] == "pending"


async def test_a_code_that_is_typed_on_the_page_leads_to_the_confirm_page() -> None:
    house = household()
    code = house.ask()
    browser = await signed_in(house, "bob")
    await browser.submit("/device", user_code=code)
    assert "Let this device use" in browser.words
