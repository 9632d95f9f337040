"""The consent page: what it shows, what its answer may and may not do, and what is remembered of it."""

from __future__ import annotations

import msgspec
import pytest

from auth.values.issuer_and_resources import Site
from auth.values.scopes import FINANCIAL, Scope, Vocabulary
from tests.auth.browser_fakes import PASSPHRASE, header, location, values
from tests.auth.code_fakes import Porch, Program, answer_of, body_of, open_porch, press
from tests.auth.identity_fakes import MINUTE, ORIGIN, POLICY

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
MONEY = Site(
    issuer=ORIGIN,
    loopback=True,
    servers={"agent": "/mcp"},
    scopes=Vocabulary(
        (msgspec.structs.replace(FINANCIAL, listed=True), Scope(name="vault", words="Open the vault"))
    ),
)

WEB = "https://client.example/cb"


async def shown(porch: Porch, program: Program, **changes: str | None) -> str:
    browser = await porch.browser()
    await browser.get(program.path(**changes), site="cross-site")
    return browser.words


# ---------------------------------------------------------------- what it shows


async def test_a_program_that_registered_itself_is_called_unverified_and_its_name_a_claim() -> None:
    async with open_porch() as porch:
        program = await porch.program(name="Claude Code")
        porch.clock.now += 2 * MINUTE
        words = await shown(porch, program)
        assert "Let an unverified program, “ Claude Code ”, use agent ?" in words
        assert "registered 2 minutes ago: any program can use this name" in words
        assert "Let Claude" not in words
        assert "Any program here could use that name" in words


async def test_a_program_with_a_document_is_called_by_its_domain() -> None:
    async with open_porch(documents=_Found()) as porch:
        program = await porch.program(
            kind="document",
            client_id="https://claude.ai/oauth/claude-code-client-metadata",
            name="Your Bank",
            redirect_uris=("http://localhost/callback", "https://claude.ai/cb"),
        )
        words = await shown(porch, program)
        assert "Let claude.ai ’s Your Bank use agent ?" in words
        assert "Let Your Bank" not in words
        assert "Any program here could use the name claude.ai" in words
        there = await shown(porch, program, redirect_uri="https://claude.ai/cb")
        assert "verified" in there
        assert "Any program here" not in there
        assert "another machine" not in there


async def test_the_page_says_where_the_login_goes_for_how_long_and_as_whom() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=("https://client.example:8443/cb",))
        words = await shown(porch, program)
        assert "https://client.example:8443 a website" in words
        assert "Nobody here has checked" in words
        assert "up to 90 days" in words
        assert "as alice" in words
        short = await porch.program(grant_types=("authorization_code",))
        assert "up to 60 minutes" in await shown(porch, short)


async def test_a_name_cannot_write_html_or_turn_the_page_around() -> None:
    async with open_porch() as porch:
        program = await porch.program(name="<script>alert(1)</script>\u202egnp.exe")
        browser = await porch.browser()
        await browser.get(program.path())
        assert "<script>" not in browser.text
        assert "\u202e" not in browser.text


async def test_the_page_can_be_neither_framed_nor_kept_and_its_forms_lead_to_us_the_program_and_on_from_there() -> (
    None
):
    async with open_porch(site=PUBLIC, origin="https://agent.example") as porch:
        program = await porch.program(redirect_uris=("https://client.example/cb",))
        browser = await porch.browser()
        reply = await browser.get(program.path(), site="cross-site")
        policy = header(reply, "content-security-policy") or ""
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self' https://client.example https:;" in policy
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert header(reply, "x-frame-options") == "DENY"
        assert header(reply, "cache-control") == "no-store"
        assert header(reply, "referrer-policy") == "no-referrer"
        assert header(reply, "strict-transport-security")
        assert not values(reply, "access-control-allow-origin")


async def test_over_plain_http_with_a_public_name_nobody_is_asked_anything() -> None:
    async with open_porch(site=PUBLIC, origin="http://agent.example") as porch:
        program = await porch.program()
        browser = await porch.browser(signed_in=False)
        reply = await browser.get(program.path(), follow=False)
        assert reply.status == 400
        assert "needs https" in browser.words


async def test_looking_at_the_page_decides_nothing() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        for _ in range(3):
            await browser.get(program.path())
        assert await porch.rows("authorization_codes") == []
        assert await porch.rows("consents") == []


# ---------------------------------------------------------------- its answer


async def test_what_is_unticked_is_not_granted_and_what_was_not_asked_cannot_be_added() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path(scope="mcp:tools mcp:resources"))
        await press(browser, "allow", scope=("mcp:tools", "mcp", "financial", "nonsense"))
        (row,) = await porch.rows("authorization_codes")
        assert row["scope"] == "mcp:tools"


async def test_nothing_beyond_the_accounts_own_ceiling_is_offered_or_granted() -> None:
    async with open_porch() as porch:
        await porch.run("UPDATE users SET scope = 'mcp:tools:read'")
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path(scope="mcp"))
        assert [value for name, value in browser.fields("/authorize/decide#allow") if name == "scope"] == [
            "mcp:tools:read"
        ]
        await press(browser, "allow", scope=("mcp", "mcp:tools:read"))
        (row,) = await porch.rows("authorization_codes")
        assert row["scope"] == "mcp:tools:read"


async def test_an_account_that_may_give_nothing_of_it_can_only_deny() -> None:
    async with open_porch() as porch:
        await porch.run("UPDATE users SET scope = 'vault'")
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path(scope="mcp"))
        assert browser.fields("/authorize/decide#deny") and "Allow" not in browser.words
        forced = await press(browser, "allow")
        assert forced.status == 400
        assert await porch.rows("authorization_codes") == []


async def test_unticking_everything_is_asked_about_again() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path())
        reply = await press(browser, "allow", scope=())
        assert reply.status == 400
        assert "one thing ticked" in browser.words
        assert (await press(browser, "allow", scope="mcp")).status == 303


async def test_what_moves_money_is_marked_unticked_and_asked_every_time() -> None:
    async with open_porch(site=MONEY) as porch:
        program = await porch.program(redirect_uris=(WEB,))
        browser = await porch.browser()
        await browser.get(program.path(scope="mcp financial"))
        assert "moves money" in browser.words
        ticked = [value for name, value in browser.fields("/authorize/decide#allow") if name == "scope"]
        assert ticked == ["mcp"]
        await press(browser, "allow", scope=("mcp", "financial"))
        (row,) = await porch.rows("authorization_codes")
        assert row["scope"] == "mcp financial"
        (consent,) = await porch.rows("consents")
        assert consent["scope"] == "mcp"
        assert (await browser.get(program.path(scope="mcp financial"), follow=False)).status == 200
        assert (await browser.get(program.path(scope="mcp"), follow=False)).status == 303


async def test_what_moves_money_asks_who_is_there_once_more_when_that_was_long_ago() -> None:
    async with open_porch(site=MONEY) as porch:
        program = await porch.program(redirect_uris=(WEB,))
        browser = await porch.browser()
        porch.clock.now += 16 * MINUTE
        await browser.get(program.path(scope="mcp financial"))
        asked = await press(browser, "allow", scope=("mcp", "financial"))
        assert (asked.status, "Is it you?" in browser.words) == (200, True)
        assert "https://client.example" in (header(asked, "content-security-policy") or "")
        assert await porch.rows("authorization_codes") == []
        wrong = await browser.submit("/authorize/decide", passphrase="seven loud herons", follow=False)
        assert wrong.status == 400
        assert await porch.rows("authorization_codes") == []
        await browser.submit("/authorize/decide", passphrase=PASSPHRASE, follow=False)
        (row,) = await porch.rows("authorization_codes")
        assert row["scope"] == "mcp financial"


async def test_without_what_moves_money_nobody_is_asked_once_more() -> None:
    async with open_porch(site=MONEY) as porch:
        program = await porch.program(redirect_uris=(WEB,))
        browser = await porch.browser()
        porch.clock.now += 16 * MINUTE
        await browser.get(program.path(scope="mcp financial"))
        assert (await press(browser, "allow", scope=("mcp",))).status == 303


async def test_a_scope_that_moves_money_is_asked_about_though_its_name_lies_under_one_that_was_given() -> (
    None
):
    paying = Vocabulary((Scope(name="mcp:pay", words="Pay", financial=True),))
    async with open_porch(site=msgspec.structs.replace(MONEY, scopes=paying)) as porch:
        program = await porch.program(redirect_uris=(WEB,))
        await program.agreed(await porch.browser(), scope="mcp")
        assert await asks(porch, program, scope="mcp:pay")


async def test_denying_tells_the_program_and_is_not_remembered() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path())
        answer = answer_of(await press(browser, "deny"))
        assert (answer["error"], answer["iss"]) == ("access_denied", ORIGIN)
        assert "code" not in answer
        assert await porch.rows("consents") == []
        assert await porch.audited("code.denied") == [("ok", "")]
        assert (await browser.get(program.path(), follow=False)).status == 200


async def test_a_form_is_good_for_its_own_request_alone() -> None:
    async with open_porch() as porch:
        program, other = await porch.program(), await porch.program()
        browser = await porch.browser()
        await browser.get(program.path())
        ours = dict(browser.fields("/authorize/decide#allow"))
        await browser.get(other.path())
        theirs = dict(browser.fields("/authorize/decide#allow"))
        for mixed in (
            {**ours, "request": theirs["request"]},
            {**ours, "request": ours["request"].replace("state=", "state=x")},
            {**ours, "form_token": ""},
            {name: value for name, value in ours.items() if name != "form_token"},
            {**ours, "request": ""},
        ):
            reply = await browser.post("/authorize/decide", *mixed.items(), ("decision", "allow"))
            assert reply.status == 403
        for decision in ("approve", "", "copy me"):
            reply = await browser.post("/authorize/decide", *ours.items(), ("decision", decision))
            assert reply.status == 403
        assert await porch.rows("authorization_codes") == []
        assert "Load it again" in browser.words


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_no_other_site_can_send_the_form(site: str) -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path())
        fields = [*browser.fields("/authorize/decide#allow"), ("decision", "allow")]
        reply = await browser.post("/authorize/decide", *fields, site=site)
        assert reply.status == 403
        foreign = {"origin": "https://evil.example"}
        reply = await browser.post("/authorize/decide", *fields, site=None, headers=foreign)
        assert reply.status == 403
        assert await porch.rows("authorization_codes") == []


async def test_a_form_of_a_session_that_is_over_leads_to_sign_in_and_back_to_the_request() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path())
        await porch.run("DELETE FROM browser_sessions")
        reply = await press(browser, "allow")
        assert location(reply).startswith("/signin?next=/authorize%3F")
        assert await porch.rows("authorization_codes") == []


async def test_what_changed_under_the_page_counts() -> None:
    async with open_porch() as porch:
        browser = await porch.browser()
        gone = await porch.program()
        await browser.get(gone.path())
        await porch.run("UPDATE clients SET state = 'disabled' WHERE id = ?", gone.client.id)
        assert (await press(browser, "allow")).status == 400
        moved = await porch.program()
        await browser.get(moved.path())
        await porch.run(
            "UPDATE clients SET redirect_uris = 'https://a.example/' WHERE id = ?", moved.client.id
        )
        assert (await press(browser, "allow")).status == 400
        less = await porch.program()
        await browser.get(less.path(scope="mcp"))
        await porch.run("UPDATE clients SET scope = 'mcp:tools' WHERE id = ?", less.client.id)
        await press(browser, "allow", scope="mcp")
        assert all(row["scope"] != "mcp" for row in await porch.rows("authorization_codes"))
        locked = await porch.program()
        await browser.get(locked.path())
        await porch.run("UPDATE users SET state = 'disabled'")
        assert location(await press(browser, "allow")).startswith("/signin")


async def test_a_page_that_sends_a_browser_round_and_round_gets_thirty_codes_a_minute_at_most() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB,))
        browser = await porch.browser()
        await program.agreed(browser)
        answers = [answer_of(await browser.get(program.path(), follow=False)) for _ in range(31)]
        assert ["code" in answer for answer in answers] == [True] * 29 + [False] * 2
        assert answers[-1]["error"] == "temporarily_unavailable"
        porch.clock.now += MINUTE
        assert "code" in answer_of(await browser.get(program.path(), follow=False))


# ---------------------------------------------------------------- what is remembered


async def asks(porch: Porch, program: Program, **changes: str | None) -> bool:
    """Whether alice is shown the page."""
    reply = await (await porch.browser()).get(program.path(**changes), follow=False)
    return reply.status == 200


async def test_the_same_is_not_asked_again_and_anything_more_is() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB, WEB + "?more", "https://other.example/cb"))
        await program.agreed(await porch.browser(), scope="mcp:tools")
        assert not await asks(porch, program, scope="mcp:tools")
        assert not await asks(porch, program, scope="mcp:tools", redirect_uri=WEB + "?more")
        assert not await asks(porch, program, scope="mcp:tools:read")
        assert await asks(porch, program, scope="mcp:tools mcp:resources")
        assert await asks(porch, program, scope="mcp")
        assert await asks(porch, program, scope="mcp:tools", redirect_uri="https://other.example/cb")
        assert await asks(porch, program, scope="mcp:tools", resource=ORIGIN + "/other/mcp")
        assert await asks(porch, program, scope="mcp:tools", prompt="consent")
        assert await asks(porch, await porch.program(redirect_uris=(WEB,)), scope="mcp:tools")


@pytest.mark.parametrize("alteration", ["scope = 'mcp'", "seal = ''", "expires_at = expires_at + 1"])
async def test_a_yes_that_somebody_altered_in_the_database_is_none(alteration: str) -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB,))
        await program.agreed(await porch.browser(), scope="mcp:tools")
        assert not await asks(porch, program, scope="mcp:tools")
        await porch.parts.store.write(lambda db: db.execute(f"UPDATE consents SET {alteration}"))
        assert await asks(porch, program, scope="mcp:tools")


async def test_a_yes_that_left_something_out_is_no_yes_to_all_of_it() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB,))
        browser = await porch.browser()
        await browser.get(program.path(scope="mcp:tools mcp:resources"))
        await press(browser, "allow", scope="mcp:tools")
        assert await asks(porch, program, scope="mcp:tools mcp:resources")
        assert not await asks(porch, program, scope="mcp:tools")


async def test_a_yes_is_forgotten_after_its_days() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB,))
        await program.agreed(await porch.browser())
        porch.clock.now += POLICY.tokens.consent_ms - 1
        assert not await asks(porch, program)
        porch.clock.now += 1
        assert await asks(porch, program)


async def test_a_client_with_other_redirect_addresses_is_asked_about_anew() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB,))
        await program.agreed(await porch.browser())
        await porch.run("UPDATE clients SET redirect_uris = redirect_uris || ' https://new.example/cb'")
        assert await asks(porch, program)


async def test_a_yes_does_not_outlive_a_login_that_was_ended() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB,))
        answer = await program.agreed(await porch.browser())
        tokens = body_of(await program.redeem(answer["code"]))
        assert not await asks(porch, program)
        await porch.post("/revoke", token=tokens["refresh_token"], client_id=program.client.id)
        assert await asks(porch, program)
        porch.clock.now += MINUTE
        await program.agreed(await porch.browser())
        assert not await asks(porch, program)


async def test_a_yes_is_one_persons_own() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(WEB,))
        await program.agreed(await porch.browser())
        await porch.run("UPDATE consents SET user_id = (SELECT id FROM users LIMIT 1)")
        await porch.run(
            "INSERT INTO users (id, name, role, state, passphrase_hash, scope, created_at)"
            " VALUES ('usr_bob', 'bob', 'user', 'enabled', 'plain:four calm herons wading', 'mcp', ?)",
            porch.clock(),
        )
        bob = await porch.browser(signed_in=False)
        await bob.sign_in("bob")
        assert (await bob.get(program.path(), follow=False)).status == 200


# ---------------------------------------------------------------- another machine


async def test_the_address_can_be_carried_by_hand_and_has_longer_to_live() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        browser = await porch.browser()
        await browser.get(program.path())
        reply = await press(browser, "copy")
        assert reply.status == 200
        assert header(reply, "location") is None
        assert header(reply, "cache-control") == "no-store"
        assert header(reply, "referrer-policy") == "no-referrer"
        policy = header(reply, "content-security-policy") or ""
        assert "script-src 'nonce-" in policy
        address = browser.text.partition("<textarea")[2].partition(">")[2].partition("<")[0]
        code = address.partition("?code=")[2].partition("&amp;")[0]
        porch.clock.now += 4 * MINUTE
        assert (await program.redeem(code)).status == 200


async def test_only_an_address_on_loopback_is_carried_by_hand() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=("https://client.example/cb",))
        browser = await porch.browser()
        await browser.get(program.path())
        assert "another machine" not in browser.words
        assert (await press(browser, "copy")).status == 403
        assert await porch.rows("authorization_codes") == []


async def test_no_code_is_in_the_audit_trail_or_stored_as_it_is() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        await program.redeem(code)
        await program.redeem(code)
        for table in ("audit", "authorization_codes", "grants", "consents", "changes"):
            assert code not in repr(await porch.rows(table))
        assert len(code) == 43


class _Found:
    async def ensure(self, client_id: str, *, network: str, signed_in: bool, now: int) -> str | None:
        del client_id, network, signed_in, now
        return None
