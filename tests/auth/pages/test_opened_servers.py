"""What the confirm and the consent page say of what is opened: the server by its title, and its tools by their names (auth/pages/opened_servers.py)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from auth.values import scopes
from auth.values.offered_servers import OfferedServer
from tests.auth.browser_fakes import Browser, House
from tests.auth.offering_fakes import PICTURE, Offered, a_support_desk


def house_with(offered: Offered) -> House:
    house = House().owned()
    house.parts = replace(house.parts, offerings=offered)
    return house


async def asked(house: House, name: str = "alice", *, scope: str = "mcp mcp:tools") -> Browser:
    browser = Browser(house)
    await browser.sign_in(name)
    await browser.look_at(house.ask(scope=scope))
    return browser


async def test_the_server_has_its_title_and_picture_and_its_tools_their_names_those_that_change_things_first() -> (
    None
):
    browser = await asked(house_with(a_support_desk()))
    assert "Let this device use Support desk ? at localhost:8420 , as alice" in browser.words
    assert (
        "5 tools (2 change things, underlined): add_note , delete_ticket , ask_model , find_orders , list_tickets"
        in browser.words
    )
    assert f'src="{PICTURE}"'.replace("'", "&#39;") in browser.text
    assert "money" not in browser.words


async def test_nothing_is_named_that_the_scopes_do_not_open() -> None:
    browser = await asked(house_with(a_support_desk()), scope="mcp:tools:read")
    assert "3 tools: ask_model , find_orders , list_tickets" in browser.words
    assert "add_note" not in browser.text
    browser = await asked(house_with(a_support_desk()), scope="mcp:resources")
    assert "tools:" not in browser.words and "ask_model" not in browser.text


async def test_nothing_is_named_that_this_persons_ceiling_or_selection_leaves_out() -> None:
    offered = a_support_desk()
    offered.hidden["default,-ask_model"] = frozenset({"ask_model"})
    house = house_with(offered)
    house.add_user("usr_bob", "bob", scope="mcp:tools:read")
    house.store.db.execute("UPDATE users SET tools = 'default,-ask_model' WHERE id = 'usr_bob'")
    browser = await asked(house, "bob")
    assert "2 tools: find_orders , list_tickets" in browser.words


async def test_money_is_spoken_of_only_where_a_tool_moves_some() -> None:
    everything = "mcp financial"
    browser = await asked(house_with(a_support_desk()), scope=everything)
    assert "money" not in browser.words and 'value="financial"' not in browser.text
    browser = await asked(house_with(a_support_desk("pay_refund")), scope=everything)
    assert "except what moves money" in browser.words and "financial 1 tool: pay_refund" in browser.words
    asks_for = browser.words.partition("Asks for")[2].partition("From")[0]
    assert "mov" in asks_for


async def test_a_permission_for_money_that_was_not_shown_is_not_given_either() -> None:
    house = house_with(a_support_desk())
    browser = await asked(house, scope="mcp financial")
    await browser.submit("/device/decide#approve")
    assert house.device_row()["granted_scope"] == "mcp"


async def test_a_long_list_is_cut_to_a_few_with_the_others_behind_and_says_how_many_there_are() -> None:
    many = tuple(f"find_{number}" for number in range(300))
    browser = await asked(house_with(Offered({"agent": OfferedServer(name="agent")}, {"agent": many})))
    before, _, behind = browser.words.partition("and 294 more")
    assert "300 tools: find_0 ," in before and "find_6" not in before
    assert "find_6 ," in behind and "find_199" in behind and "find_200" not in behind
    assert "and 100 more" in behind


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "a\u202eb" * 100, "x" * 5_000])
async def test_a_name_that_an_agent_gives_stays_a_short_text(hostile: str) -> None:
    server = OfferedServer(name="agent", title=hostile)
    browser = await asked(house_with(Offered({"agent": server}, {"agent": (hostile,)})))
    assert "<script>" not in browser.text and "\u202e" not in browser.text
    assert "x" * 101 not in browser.text


async def test_an_agent_that_is_out_of_order_is_spoken_of() -> None:
    offered = a_support_desk()
    offered.some_missing = True
    browser = await asked(house_with(offered))
    assert browser.words.count("more tools may appear") == 1


async def test_who_was_let_in_is_told_to_what() -> None:
    browser = await asked(house_with(a_support_desk()))
    await browser.submit("/device/decide#approve", scope="mcp")
    assert "on rowan.lan can use Support desk now." in browser.words
    assert "It may Use this agent" in browser.words


def test_of_several_scopes_the_widest_are_those_that_no_other_includes() -> None:
    names = ("mcp:tools", "mcp", "financial", "mcp:tools:read")
    assert scopes.widest(names) == ("mcp", "financial")
