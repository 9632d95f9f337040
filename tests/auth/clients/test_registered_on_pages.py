"""What a person is told of a program that nobody vouches for, where it asks: the confirm page and the consent page."""

from __future__ import annotations

import json

from tests.auth.browser_fakes import Browser
from tests.auth.code_fakes import open_porch
from tests.auth.identity_fakes import MINUTE
from tests.auth.registration_fakes import SEEN, ask, enrolled, sent


async def test_a_device_of_a_program_that_registered_itself_is_told_since_when_it_is_known() -> None:
    async with open_porch() as porch:
        device = await enrolled(porch.identity, "Hermes --flow device")
        porch.clock.now += 2 * MINUTE
        codes = json.loads((await porch.post("/device_authorization", client_id=device["client_id"])).body)
        browser = await porch.browser()
        await browser.look_at(codes["user_code"])
        assert "unverified registered itself 2 minutes ago: any program can use this name" in browser.words
        assert device["client_id"] in browser.words
        # Ours was not registered by anybody, and neither is it better known for it.
        codes = json.loads((await porch.post("/device_authorization", client_id="ostiary-cli")).body)
        await browser.look_at(codes["user_code"])
        assert "unverified any program can use this name" in browser.words
        assert "ostiary-cli" in browser.words


async def test_a_picture_that_a_program_names_is_neither_fetched_nor_shown() -> None:
    async with open_porch() as porch:
        picture = "https://app.example.com/logo.png"
        said = {**SEEN["an application with a scheme of its own"], "logo_uri": picture}
        reply = await sent(porch.identity, ask("/register", said))
        assert reply.status == 201
        client_id = json.loads(reply.body)["client_id"]
        assert picture not in repr(await porch.rows("clients"))
        browser: Browser = await porch.browser()
        program = await porch.program(client_id="usual", redirect_uris=("com.example.app:/cb",))
        await browser.get(program.path(client_id=client_id, redirect_uri="com.example.app:/cb"))
        assert "Let a program in?" in browser.text
        assert picture not in browser.text
        assert "<img" not in browser.text
