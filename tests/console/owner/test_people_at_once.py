"""What an owner does to an account while somebody else does something to it: an act is about what its page showed, or nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from auth.administration import guest_accounts
from auth.people.user_accounts import User
from auth.values.requester import Requester
from tests.auth.browser_fakes import ELSEWHERE, PASSPHRASE, Browser, House
from tests.auth.people_fakes import household, invited
from tests.console.owner.test_people_pages import BOB, NEW, PEOPLE, link_on, owner, user


def just_before(house: House, meanwhile: Callable[[], object]) -> None:
    """The next thing that is written comes after this, which no page has seen."""
    write, waits = house.store.write, [meanwhile]

    async def write_after(job: Any) -> Any:
        if waits:
            waits.pop()()
        return await write(job)

    house.store.write = write_after  # pyright: ignore[reportAttributeAccessIssue]


def accept(house: House, link: str) -> None:
    """The guest takes the account that was made for them."""
    who = Requester(origin=house.origin, ip=ELSEWHERE, network=ELSEWHERE, user_agent="")
    token = link.rpartition("/")[2]
    job = partial(
        guest_accounts.accept, token=token, passphrase_hash="plain:" + PASSPHRASE, who=who, now=house.time
    )
    assert isinstance(house.store.now(job), User)


def switch(house: House, verb: str, name: str) -> None:
    house.store.now(partial(guest_accounts.switch, verb=verb, name=name, by="local:0", now=house.time))


@pytest.mark.parametrize("act", ["uninvite", "resend"])
async def test_an_invitation_that_is_taken_up_as_the_owner_ends_it_or_sends_it_again_is_the_guests(
    act: str,
) -> None:
    house = household()
    link = invited(house, "dora", scope="mcp:tools")
    dora = f"{PEOPLE}/{user(house, 'dora')['id']}"
    browser = await owner(house, dora)
    just_before(house, lambda: accept(house, link))
    page = await browser.submit(f"{dora}/{act}")
    assert page.status == 409 and "dora is enabled by now" in browser.words
    assert user(house, "dora")["state"] == "enabled"
    made = [row for row in house.rows("one_time_links") if row["used_at"] is None]
    assert made == [], "nobody was made a link to choose another passphrase by"


@pytest.mark.parametrize(("act", "name"), [("reset", "bob"), ("resend", "dora")])
async def test_a_link_that_another_owner_makes_at_the_same_moment_goes_on_working(
    act: str, name: str
) -> None:
    house = household()
    house.add_user("usr_erin", "erin")
    house.store.db.execute("UPDATE users SET role = 'owner' WHERE name = 'erin'")
    invited(house, "dora", scope="mcp:tools")
    person = f"{PEOPLE}/{user(house, name)['id']}"
    alice, erin = await owner(house, person), await owner(house, person, name="erin")
    await alice.submit(f"{person}/{act}")
    link = link_on(alice)
    page = await erin.submit(f"{person}/{act}")
    assert page.status == 409 and "was given another link" in erin.words
    assert (await Browser(house).get(link)).status == 200
    await erin.get(person)
    await erin.submit(f"{person}/{act}")
    assert link_on(erin) != link and (await Browser(house).get(link)).status == 410


@pytest.mark.parametrize("act", ["reset", "resend"])
async def test_a_page_with_a_link_that_is_loaded_again_makes_no_other(act: str) -> None:
    house = household()
    invited(house, "dora", scope="mcp:tools")
    person = f"{PEOPLE}/{user(house, 'bob' if act == 'reset' else 'dora')['id']}"
    browser = await owner(house, person)
    sent = browser.fields(f"{person}/{act}")
    await browser.post(f"{person}/{act}", *sent)
    link, links = link_on(browser), house.rows("one_time_links")
    assert (await browser.post(f"{person}/{act}", *sent)).status == 409
    assert "that one counts" in browser.words and link not in browser.text
    assert house.rows("one_time_links") == links


async def test_an_invitation_whose_form_is_sent_again_is_the_one_that_was_made() -> None:
    house = household()
    browser = await owner(house, NEW)
    sent = [(name, "dora" if name == "name" else value) for name, value in browser.fields(NEW)]
    await browser.post(NEW, *sent)
    link, rows = link_on(browser), (user(house, "dora"), house.rows("one_time_links"))
    page = await browser.post(NEW, *sent)
    assert page.status == 400 and "dora is invited already" in browser.words and link not in browser.text
    assert 'value="dora"' in browser.text and 'aria-invalid="true"' in browser.text
    assert (user(house, "dora"), house.rows("one_time_links")) == rows
    assert (await Browser(house).get(link)).status == 200


async def test_of_two_owners_who_change_the_same_bounds_the_second_is_told_of_the_first() -> None:
    house = household()
    house.add_user("usr_erin", "erin")
    house.store.db.execute("UPDATE users SET role = 'owner' WHERE name = 'erin'")
    alice, erin = await owner(house, BOB), await owner(house, BOB, name="erin")
    await alice.submit(BOB, may="ticked", scope=("mcp:tools:read",), tools="readonly")
    page = await erin.submit(BOB, may="everything", tools="")
    assert page.status == 409 and "What bob may was changed since this page was opened" in erin.words
    assert (user(house, "bob")["scope"], user(house, "bob")["tools"]) == ("mcp:tools:read", "readonly")


@pytest.mark.parametrize("act", ["disable", "lock", "remove", "reset", ""])
async def test_somebody_new_under_the_same_name_is_not_who_the_page_was_about(act: str) -> None:
    house = household()
    browser = await owner(house, BOB)

    def another_bob() -> None:
        house.store.now(partial(guest_accounts.remove, name="bob", by="local:0", now=house.time))
        house.add_user("usr_bob2", "bob")

    just_before(house, another_bob)
    path = f"{BOB}/{act}".rstrip("/")
    page = await browser.post(path, *browser.fields(path), ("sure", "yes"))
    assert page.status == 409 and "was removed meanwhile" in browser.words
    assert user(house, "bob")["state"] == "enabled" and house.rows("one_time_links") == []


async def test_an_account_that_is_disabled_as_it_is_unlocked_gets_no_link_and_the_page_says_what_was_done() -> (
    None
):
    house = household()
    switch(house, "lock", "bob")
    browser = await owner(house, BOB)
    write, calls = house.store.write, list[str]()

    async def disable_between(job: Any) -> Any:
        calls.append("write")
        if len(calls) == 2:
            switch(house, "disable", "bob")
        return await write(job)

    house.store.write = disable_between  # pyright: ignore[reportAttributeAccessIssue]
    await browser.submit(f"{BOB}/unlock")
    assert "bob is unlocked. No link was made" in browser.words
    assert user(house, "bob")["state"] == "disabled" and house.rows("one_time_links") == []


# ---------------------------------------------------------------- the trail


async def test_the_trail_says_from_where_an_owner_did_it() -> None:
    house = household()
    browser = Browser(house, ip="192.0.2.77", user_agent="Mozilla/5.0 (the owner)")
    await browser.sign_in("alice")
    await browser.get(BOB)
    await browser.submit(f"{BOB}/disable")
    await browser.get(NEW)
    await browser.submit(NEW, name="dora")
    await browser.get("/account/keys/new")
    await browser.submit("/account/keys/new", name="nightly", lasts="90")
    await browser.get("/account/access")
    await browser.submit("/account/keys/end")
    await browser.submit("/account/keys/end")  # yes, that is meant
    acts = ("user.disabled", "user.invited", "invite.link_made", "api_key.created", "api_key.revoked")
    rows = {row["event"]: row for row in house.rows("audit") if row["event"] in acts}
    assert set(rows) == set(acts)
    for row in rows.values():
        assert (row["actor"], row["ip"], row["user_agent"]) == (
            f"user:{house.owner_id}",
            "192.0.2.77",
            "Mozilla/5.0 (the owner)",
        )
    await browser.get("/account/audit")
    assert "192.0.2.77" in browser.words
