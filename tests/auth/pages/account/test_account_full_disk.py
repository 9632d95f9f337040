"""A full disk keeps nobody from taking a right away in a browser, and lets nobody give one: which jobs say that they take away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.auth.browser_fakes import PASSPHRASE, Browser, House, live_sessions
from tests.auth.pages.account.test_account_keys import key_of, living
from tests.auth.pages.account.test_account_page import (
    ACCESS,
    BROWSERS,
    DAY,
    END,
    FORGET,
    MINUTE,
    YOU,
    agree,
    signed_in,
    token_of,
)
from tests.auth.people_fakes import household, let_in, revoked

AUTH = Path(__file__).parents[4] / "auth"
KEYS = "/account/keys/end"
PASSKEYS = "/account/passkeys/remove"
BOB = "/account/people/usr_bob"
REFUSED = 500  # where there is no server around the pages: that makes 503 of it


def passkey_of(house: House, user_id: str) -> None:
    house.store.db.execute(
        "INSERT INTO passkeys (credential_id, user_id, rp_id, public_key, sign_count, name, created_at)"
        " VALUES ('abc', ?, 'localhost', 'key', 0, 'Blue key', ?)",
        user_id,
        house.time,
    )


async def on_a_full_disk(house: House) -> Browser:
    """Of the owner, signed in before it was full; the session is due to be kept from growing idle, and has to be proven again."""
    browser = await signed_in(house)
    house.time += 20 * MINUTE
    house.store.db.full = True
    assert (await browser.get(ACCESS)).status == 200
    return browser


async def test_signing_out_ends_the_session() -> None:
    house = household()
    browser = await on_a_full_disk(house)
    await browser.submit("/signout")
    assert live_sessions(house) == []
    assert house.audited("user.signed_out") == ["ok"]


async def test_other_browsers_are_signed_out() -> None:
    house = household()
    await signed_in(house)
    browser = await on_a_full_disk(house)
    await browser.post(BROWSERS, token_of(browser, BROWSERS), ("browser", "others"))
    assert len(live_sessions(house)) == 1
    assert house.audited("user.browser_ended") == ["ok"]


async def test_one_other_browser_is_signed_out() -> None:
    house = household()
    await signed_in(house)
    browser = await on_a_full_disk(house)
    await browser.submit(BROWSERS)
    assert len(live_sessions(house)) == 1


async def test_a_consent_is_forgotten() -> None:
    house = household()
    agree(house, house.owner_id)
    browser = await on_a_full_disk(house)
    await browser.submit(FORGET)
    assert house.rows("consents") == []


async def test_a_passkey_is_removed_after_the_proof_that_this_needs() -> None:
    house = household()
    passkey_of(house, house.owner_id)
    browser = await on_a_full_disk(house)
    await browser.get(YOU)
    await browser.submit(PASSKEYS)
    assert "Is it you?" in browser.words
    await browser.submit(PASSKEYS, passphrase="not the right one at all")
    assert len(house.rows("passkeys")) == 1
    await browser.submit(PASSKEYS, passphrase=PASSPHRASE)
    assert house.rows("passkeys") == []
    assert house.audited("passkey.removed") == ["ok"]


async def test_logins_and_keys_end() -> None:
    house = household()
    mine = let_in(house, house.owner_id)
    key_of(house)
    browser = await on_a_full_disk(house)
    await browser.submit(END)
    await browser.submit(KEYS)
    await browser.submit(KEYS)  # yes, that is meant
    assert revoked(house) == {mine}
    assert living(house) == []


async def test_somebody_is_disabled_and_not_enabled() -> None:
    house = household()
    browser = await on_a_full_disk(house)
    await browser.get("/account/people")
    await browser.submit(f"{BOB}/disable")
    await browser.submit(f"{BOB}/disable", passphrase=PASSPHRASE)
    states = [row["state"] for row in house.rows("users")]
    assert states == ["enabled", "disabled", "enabled"]
    assert (await browser.submit(f"{BOB}/enable")).status == REFUSED
    assert [row["state"] for row in house.rows("users")] == states


async def test_nobody_signs_in_and_a_session_grows_idle() -> None:
    house = household()
    browser = await on_a_full_disk(house)
    assert (await Browser(house).sign_in("bob")).status == REFUSED
    house.time += DAY
    await browser.get(ACCESS)
    assert "Sign in" in browser.words


# ---------------------------------------------------------------- every other job

# What a statement looks like that takes a right away.
TAKING = re.compile(
    r"DELETE FROM (browser_sessions|consents|passkeys|clients|users|grants)\b|UPDATE (grants|api_keys) SET revoked_at"
)
# Their functions that make room for something else, undo what they did, or are told by who calls them.
OTHERWISE = {
    "people/browser_sessions.py:begin": "signs in",
    "people/browser_sessions.py:_forget": "`end` says it, and `begin` signs in",
    "people/passkeys.py:take_back": "of a passkey that was not given",
}


def takers() -> Iterator[tuple[str, bool]]:
    """Each function with such a statement, and whether it says so."""
    for path in sorted(AUTH.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            if any(isinstance(text, str) and TAKING.search(text) for text in texts):
                calls = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
                yield f"{path.relative_to(AUTH).as_posix()}:{node.name}", "takes_away" in calls


def test_every_job_that_takes_a_right_away_says_so() -> None:
    found = dict(takers())
    assert {name for name, says in found.items() if not says} == set(OTHERWISE)
    assert len(found) > 10
