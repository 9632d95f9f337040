"""Exchanging a code without naming the redirect address again, as OAuth 2.1 has it."""

from __future__ import annotations

from tests.auth.code_fakes import CALLBACK, open_porch

WEB = "https://client.example/cb"


async def test_an_exchange_may_leave_out_the_redirect_address_since_the_verifier_says_more() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(CALLBACK, WEB))
        browser = await porch.browser()
        code = (await program.agreed(browser, redirect_uri=CALLBACK))["code"]
        wrong: tuple[dict[str, str | None], ...] = (
            {"redirect_uri": WEB},
            {"redirect_uri": None, "code_verifier": "w" * 43},
            {"redirect_uri": None, "code_verifier": None},
        )
        for changes in wrong:
            assert (await program.redeem(code, **changes)).status == 400
        assert (await program.redeem(code, redirect_uri=None)).status == 200
