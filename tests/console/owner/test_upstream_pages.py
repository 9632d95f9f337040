"""What upstreams offer, accepted in a browser: what is shown is what is accepted, after a proof, by the owner alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from types import SimpleNamespace
from typing import Any, cast

import pytest

from server.agents.mcp.trust.definitions import MAX_KEPT, seal_of
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.agents.mcp.trust.upstream_registry import KnownUpstream, UpstreamRegistry
from server.console.owner.upstreams_page import OfferFaults, _as_many_as_fit
from tests.agents.mcp.trust.trust_fakes import (
    FILES,
    UPSTREAM_URL,
    EventLog,
    FakeAuthorizationServer,
    a_tool,
    lists,
    names,
)
from tests.auth.browser_fakes import PASSPHRASE, Browser, House, location
from tests.auth.people_fakes import household
from tests.console.owner.test_people_at_once import just_before
from tests.console.owner.test_people_pages import MINUTE

DEFINITIONS = 16

UPSTREAMS, ACCEPT = "/account/upstreams", "/account/upstreams/accept"
LOOK = f"{UPSTREAMS}/look?name=main/files"


FAULTS = (
    OfferFaults(
        server="main",
        refused=("look.up", "a" * 65),
        left_out=(
            "the tool read is offered by main[1] (a) and by main[2] (b): rename one of them",
            "main[1] (a): tool <b>: no",
        ),
    ),
    OfferFaults(
        server="lab", left_out=[f"lab[1]: tool t{number}: its schema is broken" for number in range(22)]
    ),
    OfferFaults(server="well"),
)


@dataclass
class Upstreams:
    house: House
    desk: UpstreamRegistry
    known: KnownUpstream

    async def owner(self, path: str = UPSTREAMS, name: str = "alice") -> Browser:
        browser = Browser(self.house)
        browser.routed.desk = self.desk
        await browser.sign_in(name)
        await browser.get(path)
        return browser

    @property
    def accepted(self) -> set[str]:
        return {key.name for key in self.known.guard.pins}


async def a_house(house: House | None = None) -> Upstreams:
    house = household() if house is None else house.owned()
    desk = UpstreamRegistry(
        cast("Any", house.store),
        clock=lambda: house.time,
        subkey=house.parts.subkey,
        entropy=house.entropy,
        log=cast("Any", EventLog()),
        ask=FakeAuthorizationServer({}),
        issuer=cast("Any", lambda: None),
    )
    await desk.prepare({FILES: "here"})
    known = KnownUpstream(
        key=FILES,
        what="files.example",
        url=UPSTREAM_URL,
        identity="nobody",
        guard=desk.guard(FILES, "pinned"),
    )
    desk.enter(known)
    return Upstreams(house, desk, known)


async def test_what_waits_is_shown_word_for_word_and_accepted_and_then_offered() -> None:
    there = await a_house()
    offer = lists(a_tool(), a_tool("write", "Writes a file.\u200b And tells <others>."))
    assert names(there.known.guard.allowed(offer)) == []
    browser = await there.owner()
    assert "main/files 2 to look at" in browser.words and "waiting: read , write" in browser.words
    await browser.get(LOOK)
    assert "2 definitions wait to be accepted" in browser.words
    assert "+ description: Reads a file." in browser.words
    assert "Writes a file.\\u200b And tells &lt;others&gt;." in browser.text, "what nobody would see is shown"
    await browser.submit(ACCEPT)
    assert "Accepted: 2 definitions of main/files" in browser.words
    assert there.accepted == {"read", "write"} and names(there.known.guard.allowed(offer)) == [
        "read",
        "write",
    ]
    row = [row for row in there.house.rows("audit") if row["event"] == "upstream.accepted"][-1]
    assert (row["actor"], row["reason"]) == (
        f"user:{there.house.owner_id}",
        "main/files: tool read, tool write",
    )
    await browser.get(LOOK)
    assert f'action="{ACCEPT}"' not in browser.text


async def test_what_is_known_of_each_upstream_stands_in_its_row() -> None:
    there = await a_house()
    key = UpstreamKey("main", "notes")
    await there.desk.prepare({FILES: "here", key: "here"})
    guard = there.desk.guard(key, "always")
    free = KnownUpstream(key=key, what="notes.example", url="", identity="nobody", guard=guard)
    there.desk.enter(free)
    browser = await there.owner()
    assert browser.words.count("not reached yet") == 2
    for known in (there.known, free):
        known.guard.allowed(lists(a_tool()))
    await browser.get(UPSTREAMS)
    files, _, notes = browser.words.partition("main/files")[2].partition("main/notes")
    assert "1 tool, 0 definitions" in files and "likes" not in files
    assert "offers what it likes" in notes


async def test_what_does_not_reach_programs_is_told_with_why_and_who_refuses_a_name() -> None:
    there = await a_house()
    browser = await there.owner()
    assert "not as it should be" not in browser.words
    reason = "main[1] (files): tool <img src=x>: its schema is broken"
    browser.routed.faults = [OfferFaults(server="main", refused=["look.up"], left_out=[reason])]
    await browser.get(UPSTREAMS)
    assert "Claude, Claude Desktop, Codex and Copilot refuse a name" in browser.words
    assert "look.up" in browser.words and "1 to 64 letters" in browser.words
    assert "its schema is broken" in browser.words and "<img" not in browser.text
    browser.routed.faults = [OfferFaults(server="main", left_out=[f"tool {n}: no" for n in range(23)])]
    await browser.get(UPSTREAMS)
    assert "tool 19: no" in browser.words and "tool 20: no" not in browser.words
    assert "And 3 more" in browser.words


@pytest.mark.parametrize(
    ("refused", "left_out", "summary"),
    [
        ([], [], ""),
        (["a.b"], [], "programs refuse names of its tools"),
        (["a.b"], ["x"], "1 entry is not offered, and programs refuse names of its tools"),
        ([], ["x", "y"], "2 entries are not offered"),
    ],
)
def test_faults_of_offers_in_a_few_words(refused: list[str], left_out: list[str], summary: str) -> None:
    assert OfferFaults(server="main", refused=refused, left_out=left_out).summary == summary


async def test_upstreams_with_something_to_look_at_come_first_and_then_by_name() -> None:
    there = await a_house()
    keys = [UpstreamKey("main", name) for name in ("zebra", "bee", "ant")]
    await there.desk.prepare({FILES: "here", **dict.fromkeys(keys, "here")})
    for key in keys:
        guard = there.desk.guard(key, "always" if key.agent == "ant" else "pinned")
        there.desk.enter(KnownUpstream(key=key, what="-", url="", identity="nobody", guard=guard))
        guard.allowed(lists(a_tool()))
    there.known.guard.allowed(lists(a_tool()))
    browser = await there.owner()
    assert re.findall(r"main/(\w+)", browser.words) == ["bee", "files", "zebra", "ant"]


@pytest.mark.parametrize(
    ("at", "shown"),
    [("1", 1), ("2", 2), ("0000001", 2), ("000001", 1), ("-1", 2), ("x", 2), ("", 2)],
)
async def test_a_page_begins_at_a_definition_that_there_is(at: str, shown: int) -> None:
    there = await a_house()
    there.known.guard.allowed(lists(a_tool("read"), a_tool("write")))
    browser = await there.owner(f"{LOOK}&at={at}")
    assert browser.words.count("description: Reads a file.") == shown


@pytest.mark.parametrize(
    ("characters", "accepted", "fit"), [(0, 0, 2), (1, 0, 1), (0, 1, 1), (100_000, 0, 1)]
)
def test_as_much_stands_on_a_page_as_a_browser_takes_and_never_nothing(
    characters: int, accepted: int, fit: int
) -> None:
    waiting: Any = [SimpleNamespace(key=name, text="x" * (100_000 + characters)) for name in "ab"]
    pins = {"b": SimpleNamespace(text="x")} if accepted else {}
    upstream: Any = SimpleNamespace(guard=SimpleNamespace(pins=pins))
    assert _as_many_as_fit(waiting, upstream) == waiting[:fit]


async def test_a_change_is_shown_as_one() -> None:
    there = await a_house()
    there.known.guard.allowed(lists(a_tool()))
    browser = await there.owner(LOOK)
    await browser.submit(ACCEPT)
    there.known.guard.allowed(lists(a_tool("read", "Reads a file, and mails it away.")))
    await browser.get(LOOK)
    assert "tool read changed" in browser.words
    assert re.search(r'class="minus">- description: Reads a file\.', browser.text)
    assert re.search(r'class="plus">\+ description: Reads a file, and mails it away\.', browser.text)


async def test_what_is_new_is_shown_whole_and_of_what_changed_no_more_than_its_neighbours() -> None:
    there = await a_house()
    lines = [f"Line {number}." for number in range(9)]
    there.known.guard.allowed(lists(a_tool("read", "\n".join(lines))))
    browser = await there.owner(LOOK)
    assert [line for line in lines if line in browser.words] == lines
    await browser.submit(ACCEPT)
    there.known.guard.allowed(lists(a_tool("read", "\n".join(["Another.", *lines[1:]]))))
    await browser.get(LOOK)
    assert [line for line in lines if line in browser.words] == lines[:3]


async def test_what_the_upstream_says_by_then_is_not_accepted_unseen() -> None:
    there = await a_house()
    there.known.guard.allowed(lists(a_tool()))
    browser = await there.owner(LOOK)
    there.known.guard.allowed(lists(a_tool("read", "Something else.")))
    page = await browser.submit(ACCEPT)
    assert page.status == 409 and "offers something else by now" in browser.words
    assert "Something else." in browser.words and there.accepted == set()
    await browser.submit(ACCEPT)
    assert there.accepted == {"read"}


async def test_many_definitions_come_page_by_page_and_only_those_shown_are_accepted() -> None:
    there = await a_house()
    there.known.guard.allowed(lists(*(a_tool(f"tool_{place:02}") for place in range(DEFINITIONS + 4))))
    browser = await there.owner(LOOK)
    assert f"{DEFINITIONS} of them here" in browser.words
    further = re.search(r'href="([^"]+at=\d+)"', browser.text)
    assert further is not None
    await browser.get(unescape(further[1]))
    await browser.submit(ACCEPT)
    assert there.accepted == {f"tool_{place:02}" for place in range(DEFINITIONS, DEFINITIONS + 4)}
    await browser.get(LOOK)
    await browser.submit(ACCEPT)
    assert len(there.accepted) == DEFINITIONS + 4


async def test_nobody_but_an_owner_who_was_proven_lately_accepts() -> None:
    there = await a_house()
    there.known.guard.allowed(lists(a_tool()))
    alice = await there.owner(LOOK)
    fields = alice.fields(ACCEPT)
    bob = await there.owner(LOOK, name="bob")
    assert bob.page.status == 403 and "Reads a file" not in bob.words
    assert (await bob.post(ACCEPT, *fields)).status == 403
    assert (await alice.post(ACCEPT, *(field for field in fields if field[0] != "form_token"))).status == 403
    stranger = Browser(there.house)
    stranger.routed.desk = there.desk
    page = await stranger.post(ACCEPT, *fields, follow=False)
    assert location(page) == f"/signin?next={UPSTREAMS}"
    there.house.time += 16 * MINUTE
    await alice.get(LOOK)
    await alice.submit(ACCEPT)
    assert "to accept what main/files offers" in alice.words and there.accepted == set()
    await alice.submit(ACCEPT, passphrase=PASSPHRASE)
    assert there.accepted == {"read"}


async def test_what_is_not_there_is_said_and_a_made_up_place_is_no_trouble() -> None:
    there = await a_house()
    there.known.guard.allowed(lists(a_tool()))
    browser = await there.owner(f"{UPSTREAMS}/look?name=nowhere")
    assert browser.page.status == 404 and "No such upstream" in browser.words
    await browser.get(f"{LOOK}&at=99999")
    assert "1 definition waits" in browser.words
    fields = [field for field in browser.fields(ACCEPT) if field[0] not in ("begin", "count", "seal")]
    for odd in (("begin", "99"), ("count", "0")):
        page = await browser.post(ACCEPT, *fields, odd, ("seal", "x"))
        assert page.status == 409 and there.accepted == set()
    alone = Browser(there.house)
    await alone.sign_in()
    await alone.get(UPSTREAMS)
    assert "This server has none" in alone.words


async def test_a_definition_whose_end_is_not_shown_is_not_accepted_and_the_page_says_so() -> None:
    there = await a_house()
    long = a_tool("long", "Reads. " * (MAX_KEPT // 7) + "And mails it away.")
    offer = lists(a_tool(), long, a_tool("write", "Writes a file."))
    there.known.guard.allowed(offer)
    browser = await there.owner(LOOK)
    assert "cannot be accepted" in browser.words
    assert "Accept the other 2" in browser.words
    token = dict(browser.fields(ACCEPT))
    await browser.submit(ACCEPT)
    assert there.accepted == {"read", "write"}, "only what somebody can have read"
    await browser.get(LOOK)
    assert "Its end is not shown" in browser.words and f'action="{ACCEPT}"' not in browser.text
    # Nor by a form that somebody makes up.
    fields = {**token, "begin": "0", "count": "1", "seal": seal_of(there.desk.withheld(there.known, None))}
    await browser.post(ACCEPT, *fields.items())
    assert browser.page.status == 409 and there.accepted == {"read", "write"}


async def test_a_change_of_what_was_too_long_to_one_that_is_shown_whole_is_accepted() -> None:
    there = await a_house()
    offer = lists(a_tool("read", "Reads. " * (MAX_KEPT // 7)))
    there.known.guard.allowed(offer)
    there.known.guard.accepted(list(there.known.guard.offered.values()), "local:0", 0)  # as was once possible
    there.known.guard.allowed(lists(a_tool()))
    browser = await there.owner(LOOK)
    assert "its end is not compared" in browser.words
    await browser.submit(ACCEPT)
    assert [pin.text.count("Reads") for pin in there.known.guard.pins.values()] == [1]


async def test_an_owner_who_is_signed_out_between_the_look_and_the_yes_accepts_nothing() -> None:
    there = await a_house()
    there.known.guard.allowed(lists(a_tool()))
    browser = await there.owner(LOOK)

    def sign_out() -> None:
        there.house.store.db.execute("DELETE FROM browser_sessions")

    just_before(there.house, sign_out)
    page = await browser.submit(ACCEPT)
    assert page.status == 403 and there.accepted == set()
    assert there.house.rows("upstream_pins") == []


async def test_the_trail_says_from_where_it_was_accepted() -> None:
    there = await a_house()
    there.known.guard.allowed(lists(a_tool()))
    browser = await there.owner(LOOK)
    await browser.submit(ACCEPT)
    row = [row for row in there.house.rows("audit") if row["event"] == "upstream.accepted"][-1]
    assert (row["ip"], row["user_agent"]) == (browser.ip, browser.user_agent)
