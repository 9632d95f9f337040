"""The way in (auth/pages/front_page.py): what a visitor learns at `/`, what somebody who is signed in or has just joined does at `/connect`."""

from __future__ import annotations

import dataclasses
import json

from msgspec.structs import replace

from auth.pages import front_page
from auth.values.database import NotStored
from auth.values.http_messages import WireRequest
from auth.values.offered_servers import OfferedServer
from tests.auth.browser_fakes import PASSPHRASE, PUBLIC, Browser, House, header, location
from tests.auth.identity_fakes import ORIGIN, open_identity
from tests.auth.offering_fakes import Offered, a_support_desk
from tests.auth.people_fakes import invited
from tests.auth.routed_pages import ask, site_for

TWO = {"agent": "/mcp", "archive": "/archive/mcp"}


def house_with(**options: object) -> House:
    house = House(**options)  # pyright: ignore[reportArgumentType]
    house.parts = replace(house.parts, offerings=a_support_desk())
    return house


async def test_a_visitor_is_told_what_this_is_how_to_connect_and_where_to_sign_in() -> None:
    browser = Browser(house_with().owned())
    page = await browser.get("/")
    assert page.status == 200
    for told in (
        "Support desk",
        "Answers questions about orders, and looks after tickets.",
        "http://localhost:8420/mcp",
        "claude mcp add --transport http --scope user ostiary http://localhost:8420/mcp",
        "Add to Cursor",
        "Sign in",
        "Enter it here",
    ):
        assert told in browser.words, told
    assert 'href="cursor://anysphere.cursor-deeplink/mcp/install?' in browser.text
    assert "no owner yet" not in browser.words


async def test_whoever_is_signed_in_is_led_to_their_account_and_finds_the_way_in_at_connect() -> None:
    browser = Browser(house_with().owned())
    await browser.sign_in()
    assert location(await browser.get("/", follow=False)) == "/account"
    page = await browser.get("/connect")
    assert page.status == 200
    assert "claude mcp add" in browser.words and "To your account" in browser.words
    assert "Sign in" not in browser.words and "Sign out" in browser.words


async def test_a_server_that_nobody_has_claimed_says_so_and_offers_no_signing_in() -> None:
    browser = Browser(house_with())
    await browser.get("/")
    assert "no owner yet" in browser.words and "ostiary claim" in browser.words
    assert "Sign in" not in browser.words


async def test_of_several_servers_each_has_its_title_and_a_page_of_its_own() -> None:
    browser = Browser(house_with(servers=TWO).owned())
    await browser.get("/")
    assert "2 servers at localhost:8420" in browser.words
    assert "Support desk" in browser.words and "archive http://localhost:8420/archive/mcp" in browser.words
    assert "claude mcp add" not in browser.words
    await browser.get("/connect?server=archive")
    assert "<h1><bdi>archive</bdi></h1>" in browser.text
    assert "claude mcp add" in browser.words and "All servers here" in browser.words
    await browser.get("/connect?server=nonsense")
    assert "2 servers at" in browser.words


async def test_whoever_has_just_joined_is_told_what_is_left_to_do() -> None:
    house = house_with().owned()
    browser = Browser(house)
    path = invited(house, "bob")
    await browser.get(path)
    await browser.submit(path, passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    assert browser.path == "/connect?joined=1"
    assert "Welcome, bob" in browser.words and "connect the program" in browser.words
    stranger = Browser(house)
    await stranger.get("/connect?joined=1")
    assert "Welcome" not in stranger.words


async def test_callers_are_told_the_public_address_whatever_a_proxy_made_of_the_request() -> None:
    house = House(PUBLIC, loopback=False)
    house.parts = replace(house.parts, offerings=a_support_desk())
    request = WireRequest(method="GET", path="/", origin="http://10.0.0.7:8420", ip="10.0.0.1")
    reply = await ask(site_for(house.parts), request)
    assert reply.status == 200
    assert b"https://agent.example/mcp" in reply.body and b"10.0.0.7:8420/mcp" not in reply.body
    assert b"/signin" not in reply.body, "nobody signs in where somebody could read along"


async def test_without_a_store_the_front_page_is_there_all_the_same() -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise NotStored("the disk is full")

    house = house_with()
    house.parts = replace(house.parts, store=Broken())  # pyright: ignore[reportArgumentType]
    request = WireRequest(method="GET", path="/", origin=house.origin, ip="", headers={"cookie": "x=y"})
    reply = await front_page.show(request, house.parts, needs_login=True)
    assert reply.status == 200 and b"claude mcp add" in reply.body


async def test_the_only_script_copies_and_asks_nobody_for_anything() -> None:
    browser = Browser(house_with().owned())
    policy = header(await browser.get("/"), "content-security-policy") or ""
    assert "script-src 'nonce-" in policy
    assert "connect-src" not in policy and "unsafe" not in policy
    assert browser.text.count("<script") == 1


async def test_what_a_server_says_of_itself_stays_a_text() -> None:
    hostile = "</p><script>alert(1)</script>\u202e"
    house = House().owned()
    server = OfferedServer(name="agent", title=hostile, description=hostile)
    house.parts = replace(house.parts, offerings=Offered({"agent": server}, {}))
    browser = Browser(house)
    await browser.get("/")
    assert "<script>alert" not in browser.text and "\u202e" not in browser.text


async def test_programs_are_told_what_the_server_is_called() -> None:
    async with open_identity() as identity:
        titled = dataclasses.replace(identity, parts=replace(identity.parts, offerings=a_support_desk()))
        request = WireRequest(
            method="GET", path="/.well-known/oauth-protected-resource", origin=ORIGIN, ip="127.0.0.1"
        )
        reply = await titled.handle(request)
        assert reply is not None and json.loads(reply.body)["resource_name"] == "Support desk"
        reply = await identity.handle(request)
        assert reply is not None and "resource_name" not in json.loads(reply.body)


async def test_an_invitation_says_to_what_within_the_ceiling_of_whoever_is_invited() -> None:
    house = house_with().owned()
    browser = Browser(house)
    await browser.get(invited(house, "bob", scope="mcp:tools:read"))
    assert "invite" in browser.words and "to use Support desk at localhost:8420" in browser.words
    assert "3 tools: ask_model , find_orders , list_tickets" in browser.words
    assert "delete_ticket" not in browser.text
    await browser.get(invited(house, "carol", scope="*"))
    assert "5 tools (2 change things, underlined)" in browser.words
