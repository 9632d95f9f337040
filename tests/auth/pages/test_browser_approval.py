from __future__ import annotations

from functools import partial
from typing import Literal

import pytest
import trio

from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import DeviceApproved
from auth.pages import device_confirmation, device_decision
from auth.pages.device_decision import NeedsProof
from auth.people.browser_sessions import SignedOutMeanwhile
from auth.values.http_messages import WireRequest
from auth.values.limits_and_lifetimes import DevicePolicy, Policy
from auth.values.requester import Requester
from tests.auth.browser_fakes import (
    ELSEWHERE,
    HOME,
    PASSPHRASE,
    Browser,
    House,
    cookie_of,
    header,
    live_sessions,
    location,
    session_row,
)

SECOND, MINUTE = 1_000, 60_000


async def signed_in(house: House, *, ip: str = HOME) -> Browser:
    browser = Browser(house, ip=ip)
    await browser.sign_in()
    return browser


async def looking(house: House, code: str, *, ip: str = HOME) -> Browser:
    browser = await signed_in(house, ip=ip)
    await browser.look_at(code)
    assert "Let this device use" in browser.words
    return browser


APPROVE, DENY = "/device/decide#approve", "/device/decide#deny"


async def test_a_code_is_entered_looked_at_and_approved() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    assert house.device_row()["state"] == "pending", "looking approves nothing"
    page = await browser.submit(APPROVE, scope=("mcp", "mcp:tools"))
    assert page.status == 200
    assert "Approved" in browser.words and "close this page" in browser.words
    row = house.device_row()
    assert (row["state"], row["subject"], row["decided_by"]) == ("approved", house.owner_id, house.owner_id)
    assert house.audited("device.approved") == ["ok"]


async def test_the_confirm_page_shows_every_fact() -> None:
    house = House(servers={"agent": "/mcp", "archive": "/archive/mcp"}).owned()
    code = house.ask(client_name="Ostiary on rowan", hostname="rowan.lan", user_agent="ostiary/0.1")
    house.time += 2 * MINUTE
    browser = await looking(house, code.lower().replace("-", " "))
    for fact in (
        code,
        "must match your terminal",
        "someone sent you this link",
        "Ostiary on rowan unverified",
        "ostiary-cli",
        f"rowan.lan {HOME} on your network; the name as it claims",
        "ostiary/0.1 as it claims",
        "asked 2 minutes ago, 21 September 2026",
        "up to 30 days",
        "Let this device use agent ? at localhost:8420 , as alice",
        "mcp · untick",
        "mcp:tools",
    ):
        assert fact in browser.words, fact
    assert "autofocus" in browser.text.partition(">Deny<")[0].rpartition("<button")[2]
    assert "<script" not in browser.text


async def test_a_client_that_the_owner_registered_is_called_so_and_named_as_registered() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(client=house.registered, client_name="Totally Official"))
    assert "Totally Official registered registered here as Remote bridge" in browser.words


async def test_unticked_scopes_are_taken_away() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    await browser.submit(APPROVE, scope="mcp:tools")
    assert house.device_row()["granted_scope"] == "mcp:tools"
    assert "everything it offers" not in browser.words


async def test_scopes_that_were_not_asked_for_are_never_added() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(scope="mcp:tools"))
    await browser.submit(APPROVE, scope=("mcp", "mcp:tools", "admin"))
    assert house.device_row()["granted_scope"] == "mcp:tools"


async def test_scopes_beyond_the_account_are_neither_offered_nor_given() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob", scope="mcp:tools")
    browser = Browser(house)
    await browser.sign_in("bob")
    await browser.look_at(house.ask())
    assert "everything it offers" not in browser.words
    await browser.submit(APPROVE, scope=("mcp", "mcp:tools"))
    assert house.device_row()["granted_scope"] == "mcp:tools"


async def test_with_nothing_ticked_nothing_is_approved() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    page = await browser.submit(APPROVE, scope=())
    assert page.status == 400 and "one thing ticked" in browser.words
    assert house.device_row()["state"] == "pending"
    assert not [value for name, value in browser.fields(APPROVE) if name == "scope"], (
        "what was unticked stays so"
    )


async def test_an_account_that_may_give_nothing_can_only_deny() -> None:
    house = House().owned()
    house.add_user("usr_bob", "bob", scope="")
    browser = Browser(house)
    await browser.sign_in("bob")
    await browser.look_at(house.ask())
    assert "Choose Deny" in browser.words
    assert ">Approve<" not in browser.text
    await browser.submit(DENY)
    assert house.device_row()["state"] == "denied"


async def test_a_ceiling_that_is_lowered_under_the_page_is_seen() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    house.store.db.execute("UPDATE users SET scope = ''")
    page = await browser.submit(APPROVE, scope="mcp")
    assert page.status == 400
    assert house.device_row()["state"] == "pending"


async def test_denying_denies() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    await browser.submit(DENY)
    assert "Denied" in browser.words
    assert house.device_row()["state"] == "denied"
    assert house.audited("device.denied") == ["ok"]


@pytest.mark.parametrize("path", ["/device/decide", "/device/decide?decision=approve"])
async def test_a_get_decides_nothing(path: str) -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    page = await browser.get(path)
    assert page.status == 405 and header(page, "allow") == "POST"
    assert house.device_row()["state"] == "pending"


async def test_a_decision_that_is_neither_yes_nor_no_decides_nothing() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    assert (await browser.submit(APPROVE, decision="maybe")).status == 403
    assert house.device_row()["state"] == "pending"


async def test_approving_twice_says_so() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    fields = browser.fields(APPROVE)
    await browser.post("/device/decide", *fields)
    page = await browser.post("/device/decide", *fields)
    assert page.status == 409
    assert "Already approved" in browser.words
    assert house.audited("device.approved") == ["ok"]


async def test_of_parallel_decisions_one_wins() -> None:
    house = House().owned()
    code = house.ask()
    browsers = [await looking(house, code) for _ in range(6)]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for place, browser in enumerate(browsers):
                nursery.start_soon(browser.submit, APPROVE if place % 2 else DENY)
    # Denying may take back an approval that nobody has used; approving never undoes a denial.
    assert house.device_row()["state"] == "denied"
    assert house.audited("device.denied").count("ok") == 1


async def test_whoever_was_signed_out_under_the_page_decides_nothing() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    request_id, cookie = house.device_row()["id"], cookie_of(browser)
    house.store.db.execute("DELETE FROM browser_sessions")
    outcome = house.store.now(
        partial(device_decision.deny, cookie=cookie, request_id=request_id, now=house.time)
    )
    assert isinstance(outcome, SignedOutMeanwhile)
    assert house.device_row()["state"] == "pending"
    await browser.submit(DENY)
    assert "Sign in" in browser.words
    assert house.device_row()["state"] == "pending"


async def test_an_approval_can_be_taken_back_until_it_is_used() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    deny = browser.fields(DENY)
    await browser.submit(APPROVE)
    await browser.post("/device/decide", *deny)
    assert "Denied" in browser.words
    assert house.device_row()["state"] == "denied"


async def test_deciding_after_somebody_else_did_says_what_they_decided() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    request_id = house.device_row()["id"]
    house.store.now(lambda db: device.deny(db, request_id, by="local:0", now=house.time))
    page = await browser.submit(APPROVE)
    assert page.status == 409 and "Already denied" in browser.words


async def test_deciding_too_late_says_that_the_code_has_expired() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    forms = [browser.fields(APPROVE), browser.fields(DENY)]
    house.time += 600 * SECOND
    for fields in forms:
        page = await browser.post("/device/decide", *fields)
        assert page.status == 410 and "expired" in browser.words
    assert house.device_row()["state"] == "pending"


async def test_the_decision_form_of_one_request_does_not_decide_another() -> None:
    house = House().owned()
    mine, other = house.ask(), house.ask(hostname="other")
    browser = await looking(house, mine)
    fields = dict(browser.fields(APPROVE))
    other_id = house.device_row()["id"]
    for changed in ({"request": other_id}, {"user_code": other}, {"request": other_id, "user_code": other}):
        page = await browser.post("/device/decide", *{**fields, **changed}.items(), ("scope", "mcp"))
        assert page.status == 403
    assert [row["state"] for row in house.rows("device_codes")] == ["pending", "pending"]


async def test_a_decision_after_signing_out_leads_to_sign_in() -> None:
    house = House().owned()
    browser = await looking(house, house.ask())
    house.store.db.execute("DELETE FROM browser_sessions")
    page = await browser.submit(APPROVE, follow=False)
    assert location(page) == "/signin?next=/device"
    assert house.device_row()["state"] == "pending"


# ---------------------------------------------------------------- the link with the code


async def test_without_a_session_no_code_is_looked_up() -> None:
    house = House().owned()
    code = house.ask()
    browser = Browser(house)
    right = await browser.get(f"/device?user_code={code}", follow=False)
    wrong = await browser.get("/device?user_code=BBBB-BBBB", follow=False)
    assert location(right) == f"/signin?next=/device%3Fuser_code%3D{code}"
    assert location(wrong) == "/signin?next=/device%3Fuser_code%3DBBBB-BBBB"
    await browser.get("/signin")
    assert [row for row in house.rows("attempts") if not row["bucket"].startswith("device:")] == []
    await browser.post("/device", ("user_code", code))
    assert "Let this device use" not in browser.words


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_a_link_opened_by_hand_shows_the_request_at_once(site: str) -> None:
    house = House().owned()
    browser = await signed_in(house)
    await browser.get(f"/device?user_code={house.ask()}", site=site)
    assert "Let this device use" in browser.words
    assert house.device_row()["state"] == "pending"


@pytest.mark.parametrize("site", ["cross-site", "same-site", None])
async def test_a_link_on_another_site_only_fills_the_form_in_and_uses_up_no_tries(site: str | None) -> None:
    house = House().owned()
    browser = await signed_in(house)
    for code in (house.ask(), "BBBB-BBBB"):
        await browser.get(f"/device?user_code={code}", site=site)
        assert dict(browser.fields("/device"))["user_code"] == code
        assert "Enter the code" in browser.words
    assert not [row for row in house.rows("attempts") if row["bucket"].startswith("entry")]


# ---------------------------------------------------------------- another network


async def test_from_another_network_the_page_warns() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(ip=ELSEWHERE))
    assert "comes from another network" in browser.words
    assert browser.words.index(ELSEWHERE) < browser.words.index(f"you are at {HOME}")
    assert 'class="note stop amber"' in browser.text


async def test_within_a_minute_of_signing_in_no_passphrase_is_asked_for() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(ip=ELSEWHERE))
    house.time += 59 * SECOND
    await browser.submit(APPROVE)
    assert house.device_row()["state"] == "approved"


async def test_later_the_passphrase_is_asked_for_and_checked_before_approving() -> None:
    house = House().owned()
    code = house.ask(ip=ELSEWHERE)
    browser = await signed_in(house)
    house.time += 61 * SECOND
    await browser.look_at(code)
    assert "Your passphrase, to approve" in browser.words
    for typed in ("", "not the passphrase"):
        page = await browser.submit(APPROVE, passphrase=typed)
        assert page.status == 400 and 'role="alert"' in browser.text
        assert house.device_row()["state"] == "pending"
    assert house.audited("user.proven_again") == ["refused"]
    await browser.submit(APPROVE, passphrase=PASSPHRASE)
    assert house.device_row()["state"] == "approved"
    assert house.audited("user.proven_again") == ["refused", "ok"]
    row = session_row(house, browser)
    assert row is not None and row["auth_time"] == house.time


async def test_the_passphrase_cannot_be_left_out_by_waiting_on_an_old_page() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(ip=ELSEWHERE))
    assert "Your passphrase" not in browser.words
    house.time += 61 * SECOND
    page = await browser.submit(APPROVE)
    assert page.status == 400 and "Show that it is you" in browser.words
    assert house.device_row()["state"] == "pending"


async def test_the_deciding_job_itself_asks_for_the_passphrase_however_it_was_reached() -> None:
    house = House().owned()
    code = house.ask(ip=ELSEWHERE)
    browser = await signed_in(house)
    house.time += 61 * SECOND
    mac = device.user_code_mac(house.parts.subkey(device.MAC_PURPOSE), code.replace("-", ""))
    found = house.store.now(lambda db: device_confirmation.waiting(db, mac, house.time))
    assert found is not None
    request = WireRequest(method="POST", path="/device/decide", origin=house.origin, ip=HOME)
    outcome = house.store.now(
        lambda db: device_decision.approve(
            db,
            cookie=cookie_of(browser),
            ask=found.ask,
            scope="mcp",
            who=Requester.of(request),
            given=None,
            now=house.time,
        )
    )
    assert outcome == NeedsProof()
    assert house.device_row()["state"] == "pending"


async def test_denying_never_asks_for_the_passphrase() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(ip=ELSEWHERE))
    house.time += 61 * SECOND
    await browser.submit(DENY)
    assert house.device_row()["state"] == "denied"


async def test_passphrases_on_the_confirm_page_are_throttled_like_sign_ins() -> None:
    house = House().owned()
    code = house.ask(ip=ELSEWHERE)
    browser = await signed_in(house)
    house.time += 61 * SECOND
    await browser.look_at(code)
    fields = [(name, value) for name, value in browser.fields(APPROVE) if name != "passphrase"]
    guess = (*fields, ("passphrase", "not the passphrase"))
    statuses = [(await browser.post("/device/decide", *guess)).status for _ in range(5)]
    assert statuses == [400, 400, 400, 429, 429]
    page = await browser.post("/device/decide", *fields, ("passphrase", PASSPHRASE))
    assert page.status == 429, "the right one must wait as well"
    assert house.device_row()["state"] == "pending"


async def test_a_session_that_ends_while_the_passphrase_is_hashed_approves_nothing() -> None:
    house = House().owned()
    code = house.ask(ip=ELSEWHERE)
    browser = await signed_in(house)
    house.time += 61 * SECOND
    await browser.look_at(code)
    house.before_verifying = lambda: house.store.db.execute("DELETE FROM browser_sessions")
    page = await browser.submit(APPROVE, follow=False, passphrase=PASSPHRASE)
    assert location(page) == "/signin?next=/device"
    assert house.device_row()["state"] == "pending" and not live_sessions(house)


# ---------------------------------------------------------------- hostile texts


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</bdi></dd><h1>Approved by your administrator</h1>",
    "{{ 7*7 }}{% raw %}",
    "\u202egnp.exe\u2066",
    "a\u200b\x1b[31mb",
    pytest.param("a\u0000b", marks=pytest.mark.sqlite_only("PostgreSQL keeps no such text")),
)


@pytest.mark.parametrize("text", HOSTILE)
async def test_texts_that_a_requester_claims_stay_texts(text: str) -> None:
    house = House().owned()
    code = house.ask(client_name=text, hostname=text, user_agent=text)
    # As if they had come past the door: what the page does must not lean on what the store was told.
    house.store.db.execute(
        "UPDATE device_codes SET client_name = ?, hostname = ?, user_agent = ?", *[text] * 3
    )
    browser = await looking(house, code)
    for page in (browser.text, (await browser.submit(APPROVE)).body.decode()):
        assert "<script>" not in page and "<img" not in page
        assert page.count("<h1>") == 1
        assert "{{ 7*7 }}" in page or "7*7" not in text
        assert not any(sign in page for sign in "\u202e\u2066\u200b\x00\x1b")


async def test_a_request_without_names_is_shown_by_its_registered_name() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(client_name="", hostname="", user_agent=""))
    assert "Ostiary in a terminal" in browser.words
    assert "gave no name" in browser.words and "as it claims" not in browser.words
    await browser.submit(APPROVE)
    assert "Ostiary in a terminal can use this server now" in browser.words


async def test_approving_in_the_browser_is_what_the_machine_would_have_done() -> None:
    house = House().owned()
    browser = await looking(house, house.ask(scope="mcp"))
    await browser.submit(APPROVE)
    house.ask(scope="mcp")
    row = house.device_row()
    done = house.store.now(
        lambda db: device.approve(
            db, row["id"], subject=house.owner_id, by="local:0", scope=None, now=house.time
        )
    )
    assert isinstance(done, DeviceApproved)
    first, second = house.rows("device_codes")
    for column in ("state", "subject", "granted_scope"):
        assert first[column] == second[column]


@pytest.mark.parametrize(
    ("approve_from", "approver", "approved"),
    [("same-network", HOME, True), ("same-network", ELSEWHERE, False), ("terminal", HOME, False)],
)
async def test_the_policy_says_from_where_a_device_can_be_approved_and_denying_always_works(
    approve_from: Literal["same-network", "terminal"], approver: str, approved: bool
) -> None:
    house = House(policy=Policy(device=DevicePolicy(approve_from=approve_from))).owned()
    code = house.ask()
    browser = await looking(house, code, ip=approver)
    page = await browser.submit(APPROVE, scope=("mcp",), passphrase=PASSPHRASE)
    assert page.status == (200 if approved else 403)
    assert house.device_row()["state"] == ("approved" if approved else "pending")
    if not approved:
        assert "ostiary approve" in browser.words
        await (await looking(house, code, ip=approver)).submit(DENY)
        assert house.device_row()["state"] == "denied"
