"""The Overview and the page of calls, asked for by browsers: what an owner sees, what anybody else does not, and the one thing that is done there."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from server.console.overview.calls_page import OUTCOMES, ROWS
from server.console.overview.outages import AgentOutage
from server.console.overview.overview_values import RunningParts
from tests.auth.browser_fakes import Browser, House
from tests.e2e.overview_states import caller, chat_outage, keep, record, with_calls

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
DENY = "/account/logins/deny"


@pytest.fixture
def house() -> House:
    """Alice owns it; bob has called, and so have alice and somebody."""
    house = House().owned()
    house.add_user("usr_bob", "bob")
    with_calls(house, why="hers: <script>alert(1)</script>")
    return house


async def signed_in(house: House, name: str) -> Browser:
    browser = Browser(house)

    async def outages(_: int) -> list[AgentOutage]:
        return [chat_outage(house)]

    browser.routed.running = RunningParts(
        outages=outages,
        offered=lambda: [("agent", "secret_tool")],
        to_accept=lambda: [("files", "the tool rm waits to be looked at")],
        certificate=lambda: "certificate: ends in 4.2 days",
    )
    await browser.sign_in(name)
    await browser.get("/account")
    return browser


async def test_an_owner_reads_which_agent_fails_why_since_when_and_whom_it_hits(house: House) -> None:
    browser = await signed_in(house, "alice")
    words = browser.words
    sentence = (
        "agent[1] (chat) has been out of order for 3 minutes It cannot be reached: connection refused"
        " 2 calls failed, of alice and bob. Which calls?"
    )
    assert sentence in words
    assert words.index(sentence) < words.index("Last 24 hours") < words.index("Last failures")
    for told in ("ends in 4.2 days", "the tool rm waits to be looked at", "3 calls, 2 failed (67%)", "secret_tool", "his took too long"):  # fmt: skip
        assert told in words
    assert b"<script>alert" not in browser.page.body
    assert b"&lt;script&gt;alert" in browser.page.body


async def test_anybody_else_sees_their_own_calls_and_nothing_of_others(house: House) -> None:
    browser = await signed_in(house, "bob")
    assert "his took too long" in browser.words and "Your last 24 hours 1 call" in browser.words
    for path in ("/account", "/account/calls", "/account/calls?person=alice&tool=hers"):
        await browser.get(path)
        assert browser.page.status == 200
        for secret in ("hers", "alice", "anybodys", "secret_tool", "agent[1]", "certificate", "to be looked at", "At the door"):  # fmt: skip
            assert secret not in browser.words, (path, secret)
    assert "No call matches" in browser.words


async def test_when_a_tool_was_used_last_by_others_is_told_to_the_owner_alone(house: House) -> None:
    house.time += 5 * HOUR
    keep(house, record(house.time - MINUTE, caller(house, house.owner_id, "alice"), "his"))
    told = "last call 1 minute ago"
    assert (await signed_in(house, "alice")).words.count(told) >= 1
    assert told not in (await signed_in(house, "bob")).words


async def test_calls_are_found_by_person_program_tool_and_outcome_and_read_page_by_page(house: House) -> None:
    bob = caller(house, "usr_bob", "bob")
    keep(house, *(record(house.time + place, bob, f"many_{place}") for place in range(ROWS + 10)))
    browser = await signed_in(house, "alice")
    await browser.get("/account/calls")
    assert f"many_{ROWS + 9} " in browser.words and "many_9 " not in browser.words
    older = browser.page.body.decode().split('<a class="button quiet" href="/account/calls?')[1].split('"')[0]
    await browser.get(f"/account/calls?{older}")
    assert "many_9 " in browser.words and "anybodys" in browser.words and "Older calls" not in browser.words
    for query, found, missing in (
        ("person=alice", "hers", "his"),
        ("outcome=timeout", "his", "hers"),
        ("outcome=failures&tool=hers", "hers", "his took"),
        ("person=anonymous", "anybodys", "hers"),
        ("program=nobody", "No call matches", "hers"),
        ("tool=anybodys&outcome=%3Cb%3E&at=-1", "anybodys", "<b>"),  # what is not understood is not asked for
    ):
        await browser.get(f"/account/calls?{query}")
        assert found in browser.words and missing not in browser.words, query


async def test_a_login_that_waits_is_denied_by_the_owner_and_by_nobody_else(house: House) -> None:
    house.ask(client_name="Claude Code")
    waiting = house.device_row()["id"]
    stranger = await signed_in(house, "bob")
    assert "Claude Code" not in stranger.words
    owner = await signed_in(house, "alice")
    assert "Claude Code waits for approval" in owner.words
    token = dict(owner.fields(DENY))["form_token"]
    await stranger.post(DENY, ("form_token", token), ("request", waiting))
    assert stranger.page.status == 403
    await owner.post(DENY, ("form_token", "0" * 64), ("request", waiting))
    assert owner.page.status == 403 and house.device_row()["state"] == "pending"
    unknown = Browser(house)
    unknown.routed.running = RunningParts()
    await unknown.post(DENY, ("request", waiting), follow=False)
    assert unknown.page.status == 303
    assert house.device_row()["state"] == "pending"
    await owner.get("/account")
    await owner.submit(DENY)
    assert "was not let in" in owner.words and house.device_row()["state"] == "denied"
    await owner.post(DENY, ("form_token", token), ("request", waiting))
    assert "was not let in" not in owner.words


async def test_whoever_is_not_signed_in_is_led_to_the_way_in(house: House) -> None:
    browser = Browser(house)
    browser.routed.running = RunningParts()
    for path in ("/account", "/account/calls"):
        reply = await browser.get(path, follow=False)
        assert reply.status == 303 and "/signin" in dict(reply.headers)["location"]


def test_every_outcome_that_calls_have_can_be_chosen() -> None:
    text = (Path(__file__).parents[3] / "docs" / "calls.md").read_text("utf-8")
    table = text.split("| outcome |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.M)) == set(OUTCOMES)


async def test_where_a_page_of_calls_stopped_tells_nobody_how_many_calls_there_were(house: House) -> None:
    bob = caller(house, "usr_bob", "bob")
    keep(house, *(record(house.time + place, bob, f"many_{place}") for place in range(ROWS + 10)))
    browser = await signed_in(house, "bob")
    await browser.get("/account/calls")
    seqs = {str(row["seq"]) for row in house.rows("calls")}
    place = re.search(r'href="(/account/calls\?at=([^"]+))">Older calls', browser.text)
    assert place is not None
    assert place[2] not in seqs and len(unquote(place[2])) == 48, "sealed, and as long for any number"
    await browser.get("/account/calls")
    assert place[2] not in browser.text, "not even the same place is told from another"
    await browser.get(place[1])
    assert "many_9 " in browser.words and "his took too long" in browser.words
    alice = await signed_in(house, "alice")
    for odd in (
        place[2],
        "5",
        "",
        "%F0%9F%92%A9",
        "A" * 48,
        "=",
        "A" * 500,
    ):  # which is not hers, or none at all
        await alice.get(f"/account/calls?at={odd}")
        assert alice.page.status == 200 and f"many_{ROWS + 9} " in alice.words, odd


async def test_looks_of_those_who_are_no_owners_have_calls_written_down_once_a_second(house: House) -> None:
    written: list[int] = []

    async def write_down() -> None:
        written.append(house.time)

    browsers = {name: Browser(house) for name in ("alice", "bob")}
    browsers["bob"].routed = browsers["alice"].routed
    browsers["alice"].routed.running = RunningParts(write_down=write_down)
    for name, browser in browsers.items():
        await browser.sign_in(name)
    house.time += MINUTE  # signing in led to a page

    async def looks(name: str) -> int:
        before = len(written)
        for path in ("/account", "/account/calls", "/account"):
            assert (await browsers[name].get(path)).status == 200
        return len(written) - before

    assert await looks("bob") == 1
    assert await looks("bob") == 0
    assert await looks("alice") == 3, "whoever looks for what fails sees what failed just now"
    house.time += 1_000
    assert await looks("bob") == 1
    house.time -= HOUR  # somebody set the clock
    assert await looks("bob") == 1
