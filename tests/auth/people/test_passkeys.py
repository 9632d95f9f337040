"""Passkeys against a software authenticator: making one, signing in with it, showing once more who one is, and every lie."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from auth.people import passkeys, webauthn_ceremony
from auth.values.http_messages import WireReply
from tests.auth.browser_fakes import (
    ELSEWHERE,
    LOOPBACK,
    PASSPHRASE,
    PUBLIC,
    Browser,
    House,
    attribute,
    header,
    live_sessions,
    values,
)
from tests.auth.software_authenticator import UP, UV, SoftwareAuthenticator, cbor, text_of

SECOND = 1_000
MINUTE = 60 * SECOND


def key_for(house: House, **more: Any) -> SoftwareAuthenticator:
    return SoftwareAuthenticator(
        origin=house.origin, rp_id=house.origin.partition("://")[2].partition(":")[0], **more
    )


async def question(browser: Browser, **fields: str) -> tuple[str, dict[str, Any]]:
    """What the page's script does: the ticket and the options of the passkey block on the current page."""
    page = browser.page
    block = next(tag for tag in browser.text.split("<div ") if tag.startswith('class="passkey"'))
    asked = {"for": attribute(block, "data-passkey"), "form_token": attribute(block, "data-token")}
    if attribute(block, "data-link"):
        asked["link"] = attribute(block, "data-link")
    reply = await browser.post("/passkey/options", *(asked | fields).items())
    browser.page = page
    said = json.loads(reply.body)
    assert reply.status == 200, said
    assert header(reply, "content-type") == "application/json"
    return said["ticket"], said["publicKey"]


async def claim(house: House, browser: Browser, key: SoftwareAuthenticator, name: str = "alice") -> WireReply:
    path = house.claim_path()
    await browser.get(path)
    ticket, options = await question(browser, name=name)
    return await browser.submit(path, name=name, ticket=ticket, credential=key.make(options))


async def sign_in(browser: Browser, key: SoftwareAuthenticator) -> WireReply:
    await browser.get("/signin")
    ticket, options = await question(browser)
    return await browser.submit("/signin/passkey", ticket=ticket, credential=key.answer(options))


async def owned_with_passkey(**more: Any) -> tuple[House, SoftwareAuthenticator]:
    house = House()
    key = key_for(house, **more)
    await claim(house, Browser(house), key)
    house.store.db.execute("DELETE FROM browser_sessions")
    return house, key


def reasons(house: House, event: str) -> list[str]:
    return [
        row["reason"] for row in house.rows("audit") if row["event"] == event and row["outcome"] == "refused"
    ]


# ---------------------------------------------------------------- claiming


async def test_the_owner_claims_with_a_passkey_and_has_no_passphrase() -> None:
    house, browser = House(), Browser(House())
    browser = Browser(house)
    page = await claim(house, browser, key_for(house))
    assert page.status == 200 and "The server is yours, alice" in browser.words
    (user,) = house.rows("users")
    assert (user["state"], user["name"], user["passphrase_hash"]) == ("enabled", "alice", None)
    (passkey,) = house.rows("passkeys")
    assert (passkey["user_id"], passkey["rp_id"]) == (user["id"], "localhost")
    assert house.audited("passkey.added") == ["ok"] and house.audited("owner.claimed") == ["ok"]
    assert house.hashed == 0


async def test_a_new_passkey_is_asked_to_be_discoverable_to_verify_its_person_and_to_attest_nothing() -> None:
    house = House()
    browser = Browser(house)
    await browser.get(house.claim_path())
    _, options = await question(browser, name="alice")
    assert options["authenticatorSelection"]["residentKey"] == "required"
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert options["attestation"] == "none"
    assert options["rp"]["id"] == "localhost"
    assert options["user"]["id"] == text_of(house.owner_id.encode())
    assert options["user"]["name"] == "alice"
    assert len(webauthn_ceremony._bytes(options["challenge"])) == 32


async def test_a_passkey_that_is_not_believed_claims_nothing() -> None:
    house = House()
    browser = Browser(house)
    key = key_for(house, flags=UP)
    page = await claim(house, browser, key)
    assert page.status == 400 and "cannot be used here" in browser.words
    assert house.rows("users")[0]["state"] == "unclaimed" and house.rows("passkeys") == []
    key.flags = UP | UV
    assert (await claim(house, browser, key)).status == 200


async def test_an_authenticators_answer_does_not_open_another_peoples_link() -> None:
    house = House()
    browser = Browser(house)
    path = house.claim_path()
    await browser.get(path)
    ticket, options = await question(browser, name="alice")
    credential = key_for(house).make(options)
    fields = browser.fields(path)
    house.claim_path()  # the first link stops working
    kept = [(name, value) for name, value in fields if name not in ("name", "ticket", "credential")]
    reply = await browser.post(path, *kept, ("name", "alice"), ("ticket", ticket), ("credential", credential))
    assert reply.status == 410 and house.rows("passkeys") == []


# ---------------------------------------------------------------- where there are none


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8420", "http://[::1]:8420", "http://app.localhost:8420"]
)
async def test_at_an_address_without_a_name_of_its_own_the_page_says_where_passkeys_work(origin: str) -> None:
    house = House(origin)
    browser = Browser(house)
    path = house.claim_path()
    page = await browser.get(path)
    assert "but at http://localhost:8420 they do" in browser.words
    assert f'href="http://localhost:8420{path}"' in browser.text
    assert "<script" not in browser.text and "script-src" not in (
        header(page, "content-security-policy") or ""
    )


async def test_a_server_known_by_a_number_alone_says_that_it_has_none() -> None:
    house = House("https://203.0.113.5", loopback=False)
    browser = Browser(house)
    await browser.get(house.claim_path())
    assert "an address in digits" in browser.words and "<script" not in browser.text


async def test_no_question_is_put_at_an_address_without_a_name() -> None:
    house = House("http://127.0.0.1:8420")
    browser = Browser(house)
    await browser.get("/signin")
    reply = await browser.post(
        "/passkey/options", ("for", "sign_in"), ("form_token", _token_of(browser, house))
    )
    assert reply.status == 400 and "localhost:8420" in json.loads(reply.body)["problem"]


def _token_of(browser: Browser, house: House) -> str:
    from auth.pages import reauthentication_proof
    from auth.pages.page_visit import FORM_KEY
    from auth.people import browser_sessions

    (cookie,) = browser.jar.values()
    return browser_sessions.form_token(house.parts.subkey(FORM_KEY), cookie, reauthentication_proof.FORM)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_no_question_is_put_for_another_site(site: str) -> None:
    house, _ = await owned_with_passkey()
    browser = Browser(house)
    await browser.get("/signin")
    fields = (("for", "sign_in"), ("form_token", _token_of(browser, house)))
    assert (await browser.post("/passkey/options", *fields, site=site)).status == 403
    assert (await browser.post("/passkey/options", ("for", "sign_in"))).status == 403


@pytest.mark.parametrize("wanted", ["confirm", "add", "claim", "invite", "", "nonsense"])
async def test_a_stranger_is_put_no_question_about_accounts(wanted: str) -> None:
    house, _ = await owned_with_passkey()
    browser = Browser(house)
    await browser.get("/signin")
    fields = (("for", wanted), ("form_token", _token_of(browser, house)), ("link", "x" * 32))
    reply = await browser.post("/passkey/options", *fields)
    assert reply.status == 400 and set(json.loads(reply.body)) == {"problem"}


async def test_the_sign_in_page_offers_passkeys_only_where_somebody_has_one() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.get("/signin")
    assert "passkey" not in browser.words and "<script" not in browser.text
    house, _ = await owned_with_passkey()
    browser = Browser(house)
    await browser.get("/signin")
    assert "Sign in with a passkey" in browser.words


# ---------------------------------------------------------------- signing in


async def test_a_passkey_signs_in_under_a_new_cookie_and_lands_where_one_was_going() -> None:
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await browser.get("/signin?next=/device")
    before = dict(browser.jar)
    ticket, options = await question(browser)
    assert options["allowCredentials"] == [] and options["userVerification"] == "required"
    await browser.submit("/signin/passkey", ticket=ticket, credential=key.answer(options))
    assert browser.path == "/device" and "Enter the code" in browser.words
    assert browser.jar != before and len(live_sessions(house)) == 1
    assert house.audited("user.signed_in") == ["ok"]
    (row,) = house.rows("passkeys")
    assert (row["sign_count"], row["last_used_at"]) == (1, house.time)


async def test_looking_at_pages_and_fetching_questions_writes_nothing() -> None:
    house, _ = await owned_with_passkey()
    browser = Browser(house)
    writes = house.store.writes
    for _ in range(5):
        await browser.get("/signin")
        await question(browser)
    assert house.store.writes == writes


async def test_an_authenticator_that_counts_nothing_is_let_in_again_and_again() -> None:
    house, key = await owned_with_passkey(counts=False)
    for _ in range(3):
        assert (await sign_in(Browser(house), key)).status == 200
    assert house.audited("user.signed_in") == ["ok"] * 3


Lie = Callable[[SoftwareAuthenticator], None]


def lies(**changes: Any) -> Lie:
    def tell(key: SoftwareAuthenticator) -> None:
        for name, value in changes.items():
            setattr(key, name, value)

    return tell


LIES = {
    "another origin": (lies(origin="http://evil.example"), "origin"),
    "another port": (lies(origin="http://localhost:8421"), "origin"),
    "https instead": (lies(origin="https://localhost:8420"), "origin"),
    "a name below ours": (lies(origin="http://evil.localhost:8420"), "origin"),
    "another rp id": (lies(rp_id="evil.example"), "RP ID"),
    "nobody verified": (lies(flags=UP), "User verification"),
    "nobody there": (lies(flags=UV), "User Present"),
    "a registration's answer": (lies(client_data={"type": "webauthn.create"}), "type"),
    "another type": (lies(client_data={"type": "payment.get"}), "type"),
    "another challenge": (lies(client_data={"challenge": text_of(bytes(32))}), "challenge"),
    "no challenge": (lies(client_data={"challenge": ""}), "challenge"),
    "in a frame": (lies(client_data={"crossOrigin": True}), "frame"),
    "under another page": (lies(client_data={"topOrigin": "https://evil.example"}), "frame"),
    "a challenge that is a number": (lies(client_data={"challenge": 7}), "challenge"),
    "another's key": (lies(key=SoftwareAuthenticator(origin="", rp_id="").key), "signature"),
    "another's account": (lies(user_handle=b"usr_somebody_else"), "somebody else's"),
    "an id we do not know": (lies(credential_id=b"another credential"), "unknown passkey"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_no_lie_of_an_authenticator_signs_anybody_in(lie: str) -> None:
    house, key = await owned_with_passkey()
    tell, reason = LIES[lie]
    tell(key)
    browser = Browser(house)
    page = await sign_in(browser, key)
    assert page.status == 400 and "That passkey was not accepted" in browser.words
    assert live_sessions(house) == []
    (refused,) = reasons(house, "user.signed_in")
    assert reason.lower() in refused.lower()


async def test_an_answer_counts_once() -> None:
    house, key = await owned_with_passkey(counts=False)
    browser = Browser(house)
    await browser.get("/signin")
    ticket, options = await question(browser)
    fields = dict(browser.fields("/signin/passkey")) | {"ticket": ticket, "credential": key.answer(options)}
    jar = dict(browser.jar)
    assert (await browser.post("/signin/passkey", *fields.items())).status == 200
    browser.jar = jar
    reply = await browser.post("/signin/passkey", *fields.items())
    assert reply.status == 400 and len(live_sessions(house)) == 1
    assert reasons(house, "user.signed_in") == ["the challenge was used before"]


async def test_an_answer_counts_for_two_minutes() -> None:
    house, key = await owned_with_passkey()
    for late, status in ((120 * SECOND - 1, 303), (120 * SECOND, 400)):
        browser = Browser(house)
        await browser.get("/signin")
        ticket, options = await question(browser)
        house.time += late
        reply = await browser.submit(
            "/signin/passkey", ticket=ticket, credential=key.answer(options), follow=False
        )
        assert reply.status == status
    assert "That took too long" in browser.words


async def test_a_ticket_cannot_be_given_more_time() -> None:
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await browser.get("/signin")
    ticket, options = await question(browser)
    credential = key.answer(options)
    expires, _, nonce = ticket.partition(".")
    house.time += 119 * SECOND
    for forged in (
        f"{int(expires) + 60_000}.{nonce}",
        f"{expires}.{'A' * 22}",
        "",
        ".",
        f"0.{nonce}",
        "9" * 400,
    ):
        await browser.get("/signin")
        reply = await browser.submit("/signin/passkey", ticket=forged, credential=credential)
        assert reply.status == 400, forged
    assert live_sessions(house) == []


async def test_an_answer_that_was_asked_for_in_another_browser_is_refused() -> None:
    house, key = await owned_with_passkey()
    mine, theirs = Browser(house), Browser(house)
    await mine.get("/signin")
    await theirs.get("/signin")
    ticket, options = await question(mine)
    reply = await theirs.submit("/signin/passkey", ticket=ticket, credential=key.answer(options))
    assert reply.status == 400 and live_sessions(house) == []
    assert reasons(house, "user.signed_in") == ["Wrong challenge in response"]


async def test_an_answer_to_one_question_is_none_to_another() -> None:
    """One that was given to show once more who one is signs nobody in."""
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await sign_in(browser, key)
    fields = {"for": "confirm", "form_token": _token_of(browser, house)}
    said = json.loads((await browser.post("/passkey/options", *fields.items())).body)
    credential = key.answer(said["publicKey"])
    await browser.get("/signin?again=1")
    reply = await browser.submit("/signin/passkey", ticket=said["ticket"], credential=credential)
    assert reply.status == 400 and len(live_sessions(house)) == 1


@pytest.mark.parametrize("back_to", [0, 1, 2])
async def test_a_counter_that_goes_back_or_stands_still_is_a_copy(back_to: int) -> None:
    house, key = await owned_with_passkey()
    for _ in range(3):
        await sign_in(Browser(house), key)
    key.count = back_to - 1 if back_to else 2
    key.counts = back_to != 0
    house.store.db.execute("DELETE FROM browser_sessions")
    assert (await sign_in(Browser(house), key)).status == 400
    assert live_sessions(house) == []
    assert "may have been copied" in reasons(house, "user.signed_in")[0]
    assert house.rows("passkeys")[0]["sign_count"] == 3


@pytest.mark.parametrize("state", ["disabled", "locked", "invited", "unclaimed"])
async def test_a_passkey_of_an_account_that_may_not_sign_in_opens_nothing(state: str) -> None:
    house, key = await owned_with_passkey()
    house.store.db.execute("UPDATE users SET state = ?", state)
    browser = Browser(house)
    assert (await sign_in(browser, key)).status == 400
    assert live_sessions(house) == [] and f"account is {state}" not in browser.words
    assert reasons(house, "user.signed_in") == [f"the account is {state}"]


async def test_a_passkey_of_an_account_whose_time_is_over_opens_nothing() -> None:
    house, key = await owned_with_passkey()
    house.store.db.execute("UPDATE users SET expires_at = ?", house.time)
    assert (await sign_in(Browser(house), key)).status == 400
    assert live_sessions(house) == []


GARBAGE = {
    "nothing": "",
    "no JSON": "{",
    "a list": "[]",
    "a number": "1",
    "deep": "[" * 16_000,
    "deep inside": '{"type":"public-key","rawId":"YQ","response":'
    + '{"a":' * 3_000
    + "1"
    + "}" * 3_000
    + "}",
    "no response": '{"type":"public-key","rawId":"YQ"}',
    "another type": '{"type":"password","rawId":"YQ","response":{}}',
    "an id that is no base64url": '{"type":"public-key","rawId":"a+b/","response":{"authenticatorData":"","clientDataJSON":"","signature":""}}',
    "an empty id": '{"type":"public-key","rawId":"","response":{"authenticatorData":"","clientDataJSON":"","signature":""}}',
    "an endless id": '{"type":"public-key","rawId":"'
    + "A" * 1_368
    + '","response":{"authenticatorData":"","clientDataJSON":"","signature":""}}',
    "a handle that is no text": '{"type":"public-key","rawId":"YQ","response":{"authenticatorData":"","clientDataJSON":"","signature":"","userHandle":"_w"}}',
    "a surrogate": '"\\ud800"',
}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_is_answered_with_a_page_and_counts_nothing(garbage: str) -> None:
    house, _ = await owned_with_passkey()
    browser = Browser(house)
    await browser.get("/signin")
    ticket, _ = await question(browser)
    before = house.rows("attempts")
    page = await browser.submit("/signin/passkey", ticket=ticket, credential=GARBAGE[garbage])
    assert page.status == 400 and live_sessions(house) == []
    assert house.rows("attempts") == before


async def test_an_answer_longer_than_any_is_not_read() -> None:
    house, _ = await owned_with_passkey()
    browser = Browser(house)
    await browser.get("/signin")
    ticket, _ = await question(browser)
    page = await browser.submit(
        "/signin/passkey", ticket=ticket, credential="A" * (webauthn_ceremony.ANSWER_CHARACTERS + 1)
    )
    assert page.status == 400 and "cannot be read" in browser.words
    assert isinstance(
        webauthn_ceremony.read_assertion("A" * (webauthn_ceremony.ANSWER_CHARACTERS + 1)),
        webauthn_ceremony.PasskeyNotBelieved,
    )


async def test_tries_are_counted_by_network_and_good_ones_taken_back() -> None:
    house, key = await owned_with_passkey(counts=False)
    await sign_in(Browser(house), key)
    assert [row for row in house.rows("attempts") if row["bucket"].startswith("signin:")] == []
    key.flags = UP
    for _ in range(20):
        assert (await sign_in(Browser(house), key)).status == 400
    browser = Browser(house)
    assert (await sign_in(browser, key)).status == 429
    key.flags = UP | UV
    assert (await sign_in(browser, key)).status == 429
    assert (await sign_in(Browser(house, ip=ELSEWHERE), key)).status == 200  # nobody is locked out by others


# ---------------------------------------------------------------- making one: every lie again


MADE_WRONG = {
    "another origin": lies(origin="http://evil.example"),
    "another rp id": lies(rp_id="evil.example"),
    "nobody verified": lies(flags=UP),
    "nobody there": lies(flags=UV),
    "a sign-in's answer": lies(client_data={"type": "webauthn.get"}),
    "another challenge": lies(client_data={"challenge": text_of(bytes(32))}),
    "in a frame": lies(client_data={"crossOrigin": True}),
    "a kind not asked for": lies(algorithm=-47),
    "an unknown kind": lies(algorithm=-65_000 + 500),
    "an endless id": lies(credential_id=b"x" * 1_024),
    "an empty id": lies(credential_id=b""),
}


@pytest.mark.parametrize("lie", MADE_WRONG)
async def test_no_lie_of_an_authenticator_makes_a_passkey(lie: str) -> None:
    house = House()
    key = key_for(house)
    MADE_WRONG[lie](key)
    browser = Browser(house)
    assert (await claim(house, browser, key)).status == 400
    assert house.rows("passkeys") == [] and house.rows("users")[0]["state"] == "unclaimed"


async def test_an_attestation_object_of_a_thousand_nested_lists_is_refused_politely() -> None:
    house = House()
    browser = Browser(house)
    path = house.claim_path()
    await browser.get(path)
    ticket, options = await question(browser, name="alice")
    honest = json.loads(key_for(house).make(options))
    for attestation in (b"\x81" * 10_000, b"", b"\xff", cbor({"fmt": "none"}), b"\xbb" + b"\xff" * 8):
        honest["response"]["attestationObject"] = text_of(attestation)
        await browser.get(path)
        page = await browser.submit(path, name="alice", ticket=ticket, credential=json.dumps(honest))
        assert page.status == 400
    assert house.rows("passkeys") == []


# ---------------------------------------------------------------- one's own


async def at_account(house: House, browser: Browser, key: SoftwareAuthenticator, name: str = "") -> WireReply:
    await browser.get("/account/you")
    await browser.submit("/account/passkeys/new")
    ticket, options = await question(browser)
    assert options["user"]["id"] == text_of(house.owner_id.encode())
    return await browser.submit(
        "/account/passkeys", ticket=ticket, credential=key.make(options), passkey_name=name
    )


async def test_a_second_passkey_is_named_listed_and_signs_in() -> None:
    house = House().owned()
    browser = Browser(house, user_agent="Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0")
    await browser.sign_in()
    key = key_for(house)
    page = await at_account(house, browser, key, name="Blue   key \u202e")
    assert page.status == 200 and "The passkey was added" in browser.words
    assert "Blue key" in browser.words and "never used" in browser.words
    assert house.rows("passkeys")[0]["name"] == "Blue key"
    assert (await sign_in(Browser(house), key)).status == 200


async def test_a_known_passkey_is_excluded_and_cannot_be_added_twice_or_by_another() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    key = key_for(house)
    await at_account(house, browser, key)
    await browser.get("/account/you")
    await browser.submit("/account/passkeys/new")
    _, options = await question(browser)
    assert [each["id"] for each in options["excludeCredentials"]] == [text_of(key.credential_id)]
    page = await at_account(house, browser, key)
    assert page.status == 400 and "in use here already" in browser.words
    house.add_user("usr_bob", "bob")
    bob = Browser(house)
    await bob.sign_in("bob")
    await bob.get("/account/you")
    await bob.submit("/account/passkeys/new")
    ticket, options = await question(bob)
    page = await bob.submit("/account/passkeys", ticket=ticket, credential=key.make(options))
    assert page.status == 400
    assert [row["user_id"] for row in house.rows("passkeys")] == [house.owner_id]


async def test_nobody_has_more_than_twenty() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    for number in range(passkeys.PER_USER):
        assert (await at_account(house, browser, key_for(house, credential_id=b"%d" % number))).status == 200
    assert "as many as" in browser.words
    assert 'action="/account/passkeys/new"' not in browser.text


async def test_adding_and_removing_ask_an_old_session_to_show_who_it_is() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await at_account(house, browser, key_for(house))
    house.time += 20 * MINUTE
    await browser.get("/account/you")
    await browser.submit("/account/passkeys/new")
    assert "Is it you?" in browser.words
    await browser.submit("/account/passkeys/new", passphrase=PASSPHRASE)
    assert "What to call it" in browser.words
    house.time += 20 * MINUTE
    await browser.get("/account/you")
    await browser.submit("/account/passkeys/remove")
    assert "Is it you?" in browser.words and len(house.rows("passkeys")) == 1
    await browser.submit("/account/passkeys/remove", passphrase="not the right one")
    assert "not your passphrase" in browser.words and len(house.rows("passkeys")) == 1
    await browser.submit("/account/passkeys/remove", passphrase=PASSPHRASE)
    assert "The passkey was removed" in browser.words and house.rows("passkeys") == []


async def test_a_passkey_shows_who_one_is_where_a_passphrase_would() -> None:
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await sign_in(browser, key)
    house.time += 20 * MINUTE
    await browser.get("/account/you")
    await browser.submit("/account/passkeys/new")
    assert "Is it you?" in browser.words and "Use your passkey" in browser.words
    assert 'name="passphrase"' not in browser.text
    ticket, options = await question(browser)
    assert [each["id"] for each in options["allowCredentials"]] == [text_of(key.credential_id)]
    await browser.submit("/account/passkeys/new", proof_ticket=ticket, proof_credential=key.answer(options))
    assert "What to call it" in browser.words
    assert house.audited("user.proven_again") == ["ok"]


async def test_the_last_way_in_cannot_be_removed() -> None:
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await sign_in(browser, key)
    await browser.get("/account/you")
    assert "your only way in" in browser.words and 'action="/account/passkeys/remove"' not in browser.text
    new = dict(browser.fields("/account/passkeys/new"))
    credential = text_of(key.credential_id)
    await browser.post("/account/passkeys/remove", ("form_token", new["form_token"]), ("passkey", credential))
    assert "your only way in" in browser.words and len(house.rows("passkeys")) == 1
    await at_account(house, browser, key_for(house, credential_id=b"the second"))
    await browser.submit("/account/passkeys/remove")
    assert len(house.rows("passkeys")) == 1 and "The passkey was removed" in browser.words


async def test_a_passkey_for_another_name_is_no_way_in_here() -> None:
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await sign_in(browser, key)
    await at_account(house, browser, key_for(house, credential_id=b"the second"))
    house.store.db.execute("UPDATE passkeys SET rp_id = 'old.example' WHERE last_used_at IS NULL")
    await browser.get("/account/you")
    assert browser.words.count("your only way in") == 2
    assert "works at old.example only" in browser.words


async def test_somebody_elses_passkey_cannot_be_removed() -> None:
    house, key = await owned_with_passkey()
    house.add_user("usr_bob", "bob")
    bob = Browser(house)
    await bob.sign_in("bob")
    await bob.get("/account/you")
    token = dict(bob.fields("/account/passkeys/new"))["form_token"]
    await bob.post("/account/passkeys/remove", ("form_token", token), ("passkey", text_of(key.credential_id)))
    assert "nothing to change" in bob.words and len(house.rows("passkeys")) == 1


# ---------------------------------------------------------------- a device on another network


async def elsewhere(house: House, browser: Browser) -> None:
    house.time += 61 * SECOND
    await browser.look_at(house.ask(ip=ELSEWHERE))


async def test_a_device_on_another_network_is_let_in_with_a_passkey() -> None:
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await sign_in(browser, key)
    await elsewhere(house, browser)
    assert "Approve with your passkey" in browser.words and 'name="passphrase"' not in browser.text
    ticket, options = await question(browser)
    await browser.submit(
        "/device/decide#approve",
        proof_ticket=ticket,
        proof_credential=key.answer(options),
        scope=("mcp",),
    )
    assert "Approved" in browser.words
    assert house.device_row()["state"] == "approved"
    assert house.audited("user.proven_again") == ["ok"]


@pytest.mark.parametrize("lie", ["nobody verified", "another origin", "another's key", "another's account"])
async def test_no_lie_lets_a_device_on_another_network_in(lie: str) -> None:
    house, key = await owned_with_passkey()
    browser = Browser(house)
    await sign_in(browser, key)
    await elsewhere(house, browser)
    LIES[lie][0](key)
    ticket, options = await question(browser)
    page = await browser.submit(
        "/device/decide#approve", proof_ticket=ticket, proof_credential=key.answer(options), scope=("mcp",)
    )
    assert page.status == 400 and "That passkey was not accepted. Nothing was approved." in browser.words
    assert house.device_row()["state"] == "pending"


async def test_another_persons_passkey_does_not_let_a_device_in_through_ones_session() -> None:
    house, _ = await owned_with_passkey()
    house.add_user("usr_bob", "bob")
    bob, bobs = Browser(house), key_for(house, credential_id=b"bob's own")
    await bob.sign_in("bob")
    await bob.get("/account/you")
    await bob.submit("/account/passkeys/new")
    ticket, options = await question(bob)
    await bob.submit("/account/passkeys", ticket=ticket, credential=bobs.make(options))
    house.store.db.execute("UPDATE users SET passphrase_hash = ? WHERE role = 'owner'", "plain:" + PASSPHRASE)
    alice = Browser(house)
    await alice.sign_in()
    await elsewhere(house, alice)
    ticket, options = await question(alice)
    page = await alice.submit(
        "/device/decide#approve", proof_ticket=ticket, proof_credential=bobs.answer(options), scope=("mcp",)
    )
    assert page.status == 400 and house.device_row()["state"] == "pending"
    assert reasons(house, "user.proven_again") == ["the passkey is another person's"]


async def test_with_both_a_passphrase_and_a_passkey_either_will_do() -> None:
    house = House().owned()
    browser = Browser(house)
    await browser.sign_in()
    await at_account(house, browser, key_for(house))
    await elsewhere(house, browser)
    assert "Approve with your passkey" in browser.words and "Your passphrase, to approve" in browser.words
    await browser.submit("/device/decide#approve", passphrase=PASSPHRASE, scope=("mcp",))
    assert house.device_row()["state"] == "approved"


async def test_who_has_only_a_passkey_and_cannot_use_it_here_is_told_where() -> None:
    house = House("http://127.0.0.1:8420").owned()
    browser = Browser(house)
    await browser.sign_in()
    house.store.db.execute("UPDATE users SET passphrase_hash = NULL")
    await elsewhere(house, browser)
    assert "http://localhost:8420" in browser.words.partition("no passphrase")[2]
    assert "Approve" not in re.findall(r"<button[^>]*>([^<]*)", browser.text)


# ---------------------------------------------------------------- a public name


async def test_on_a_public_name_the_name_is_the_issuers_and_the_origin_https() -> None:
    house = House(PUBLIC, loopback=False)
    browser, key = Browser(house), key_for(house)
    assert (await claim(house, browser, key)).status == 200
    assert house.rows("passkeys")[0]["rp_id"] == "agent.example"
    assert (await sign_in(Browser(house), key)).status == 200
    key.origin = "http://agent.example"
    assert (await sign_in(Browser(house), key)).status == 400


async def test_an_alias_of_a_public_name_has_none() -> None:
    house = House(PUBLIC, loopback=False)
    house.origin = "https://alias.example"
    browser = Browser(house)
    await browser.get(house.claim_path())
    assert "Passkeys work at https://agent.example only" in browser.words


async def test_only_scripted_pages_may_run_a_script_and_it_has_the_nonce_of_the_reply() -> None:
    house, _ = await owned_with_passkey()
    browser = Browser(house)
    page = await browser.get("/signin")
    policy = header(page, "content-security-policy") or ""
    nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
    assert nonce and browser.text.count("<script") == 1 and f'<script nonce="{nonce}">' in browser.text
    assert not values(page, "access-control-allow-origin") and LOOPBACK in house.origin
