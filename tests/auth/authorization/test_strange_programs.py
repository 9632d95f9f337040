"""Programs that anybody can register or pretend to be: where a browser is sent for them, and when a person is asked about them."""

from __future__ import annotations

import pytest

from auth.clients import client_registry as clients
from auth.values.identity_model import Client
from tests.auth.browser_fakes import header
from tests.auth.code_fakes import CALLBACK, STATE, Porch, answer_of, open_porch
from tests.auth.identity_fakes import ORIGIN

WEB = "https://client.example/cb"


APP = "com.example.app:/cb"


@pytest.mark.parametrize("address", [WEB, APP])
@pytest.mark.parametrize("kind", ["dynamic", "document"])
@pytest.mark.parametrize("wrong", [{"response_type": "token"}, {"prompt": "none"}, {"code_challenge": None}])
async def test_nobody_who_is_not_signed_in_is_sent_to_an_address_that_a_stranger_registered(
    address: str, kind: str, wrong: dict[str, str | None]
) -> None:
    async with open_porch() as porch:
        program = await porch.program(kind=kind, redirect_uris=(address,))
        stranger = await porch.browser(signed_in=False)
        reply = await stranger.get(program.path(**wrong), site="cross-site", follow=False)
        assert (reply.status, header(reply, "location")) == (400, None)
        where = address.removesuffix("/cb")
        assert f"Back to {where}" in stranger.words
        # The person may go there, and the program then learns what was wrong.
        assert f'href="{address}?error=' in stranger.text
        assert f"state={STATE}" in stranger.text

        alice = await porch.browser()
        answer = answer_of(await alice.get(program.path(**wrong), site="cross-site", follow=False))
        assert (answer["state"], answer["iss"]) == (STATE, ORIGIN)


async def test_programs_that_the_operator_entered_and_those_on_the_persons_machine_are_told_at_once() -> None:
    async with open_porch() as porch:
        known = await porch.program(kind="registered", redirect_uris=(WEB,))
        here = await porch.program()
        for program in (known, here):
            stranger = await porch.browser(signed_in=False)
            reply = await stranger.get(program.path(response_type="token"), site="cross-site", follow=False)
            assert answer_of(reply)["error"] == "unsupported_response_type"


async def with_secret(porch: Porch, client: Client) -> None:
    await porch.run(
        "UPDATE clients SET auth_method = 'client_secret_basic', secret_hash = ? WHERE id = ?",
        clients.secret_hash("s3cret"),
        client.id,
    )


@pytest.mark.parametrize(
    "address", [CALLBACK, "http://localhost/cb", "http://[::1]:9/cb", APP, "cursor://a/cb"]
)
@pytest.mark.parametrize("kind", ["dynamic", "document", "registered"])
async def test_a_program_that_anybody_can_pretend_to_be_is_asked_about_every_time(
    address: str, kind: str
) -> None:
    """RFC 8252 §8.6: whatever runs on the person's machine can name the id and wait at the address."""
    async with open_porch() as porch:
        program = await porch.program(kind=kind, redirect_uris=(address,))
        alice = await porch.browser()
        assert "code" in await program.agreed(alice)
        again = await alice.get(program.path(), site="cross-site", follow=False)
        assert again.status == 200
        assert header(again, "location") is None
        silent = answer_of(await alice.get(program.path(prompt="none"), site="cross-site", follow=False))
        assert silent["error"] == "consent_required"
        assert await porch.rows("consents") == []

        await with_secret(porch, program.client)  # from now on a code is of use to nobody else
        assert "code" in await program.agreed(alice)
        assert "code" in answer_of(await alice.get(program.path(), site="cross-site", follow=False))


async def test_a_yes_to_a_program_with_a_secret_ends_when_it_gives_its_secret_up() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        await with_secret(porch, program.client)
        alice = await porch.browser()
        await program.agreed(alice)
        assert (await alice.get(program.path(), follow=False)).status == 303
        await porch.run("UPDATE clients SET auth_method = 'none', secret_hash = NULL")
        assert (await alice.get(program.path(), follow=False)).status == 200
