"""The registrations and authorization requests that real programs send, word by word, all the way to a token."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from auth.values.identity_model import DEVICE_CODE
from tests.auth.browser_fakes import header, location
from tests.auth.code_fakes import CHALLENGE, STATE, VERIFIER, Porch, answer_of, body_of, open_porch, press
from tests.auth.identity_fakes import ORIGIN, SITE

RESOURCE = ORIGIN + "/mcp"
LISTED = " ".join((*SITE.scopes.listed, "offline_access"))


@dataclass(frozen=True, kw_only=True)
class Real:
    """What a program registered, and what it opens the browser with."""

    registered: tuple[str, ...]
    redirect_uri: str
    name: str = "Program"
    client_id: str = ""
    kind: str = "dynamic"
    more: tuple[tuple[str, str], ...] = ()


PROGRAMS = {
    "Claude Code, by its document": Real(
        kind="document",
        client_id="https://claude.ai/oauth/claude-code-client-metadata",
        name="Claude Code",
        registered=("http://localhost/callback", "http://127.0.0.1/callback"),
        redirect_uri="http://localhost:58229/callback",
        more=(("scope", LISTED), ("prompt", "consent"), ("resource", RESOURCE)),
    ),
    "Claude Code, registered": Real(
        name="Claude Code (agent)",
        registered=("http://localhost:58229/callback",),
        redirect_uri="http://localhost:58229/callback",
        more=(("scope", LISTED), ("resource", RESOURCE)),
    ),
    "Codex, by its document": Real(
        kind="document",
        client_id="https://chatgpt.com/oauth/codex/client.json",
        name="Codex",
        registered=("http://127.0.0.1/callback", "http://localhost/callback"),
        redirect_uri="http://127.0.0.1:38937/callback",
        more=(("scope", "mcp offline_access"), ("resource", RESOURCE)),
    ),
    "Codex, that says its resource twice": Real(
        name="Codex",
        registered=("http://127.0.0.1:38937/callback/x7a",),
        redirect_uri="http://127.0.0.1:38937/callback/x7a",
        more=(("resource", RESOURCE), ("resource", RESOURCE)),
    ),
    "Gemini CLI": Real(
        name="Gemini CLI MCP Client",
        registered=("http://localhost:42917/oauth/callback",),
        redirect_uri="http://localhost:42917/oauth/callback",
        more=(("scope", LISTED), ("resource", RESOURCE), ("access_type", "offline")),
    ),
    "Gemini CLI, that asks for no scope": Real(
        registered=("http://localhost:42917/oauth/callback",),
        redirect_uri="http://localhost:42917/oauth/callback",
        more=(("scope", ""),),
    ),
    "Inspector": Real(
        name="MCP Inspector",
        registered=("http://localhost:6274/oauth/callback", "http://localhost:6274/oauth/callback/debug"),
        redirect_uri="http://localhost:6274/oauth/callback/debug",
        more=(("scope", "mcp:tools"), ("resource", RESOURCE + "/"), ("prompt", "consent")),
    ),
    "mcp-remote": Real(
        name="MCP CLI Proxy",
        registered=("http://localhost:12834/oauth/callback",),
        redirect_uri="http://localhost:12834/oauth/callback",
        more=(("scope", "mcp offline_access"), ("resource", RESOURCE)),
    ),
    "Cursor, with its three addresses": Real(
        name="Cursor",
        registered=(
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
            "http://localhost:8787/callback",
        ),
        redirect_uri="cursor://anysphere.cursor-mcp/oauth/callback",
        more=(("resource", RESOURCE),),
    ),
    "VS Code": Real(
        name="Visual Studio Code",
        registered=(
            "https://insiders.vscode.dev/redirect",
            "https://vscode.dev/redirect",
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
        ),
        redirect_uri="http://127.0.0.1:33418/",
        more=(("scope", "mcp mcp:tools"), ("resource", RESOURCE)),
    ),
    "VS Code on the web": Real(
        name="Visual Studio Code",
        registered=("https://vscode.dev/redirect", "http://127.0.0.1:33418/"),
        redirect_uri="https://vscode.dev/redirect",
        more=(("resource", RESOURCE),),
    ),
    "Python SDK 2": Real(
        registered=("http://localhost:3030/callback",),
        redirect_uri="http://localhost:3030/callback",
        more=(("resource", RESOURCE), ("scope", "mcp offline_access"), ("prompt", "consent")),
    ),
    "fastmcp, restarted on another port": Real(
        registered=("http://localhost:49152/callback",),
        redirect_uri="http://localhost:61000/callback",
        more=(("resource", RESOURCE),),
    ),
    "Claude on the web": Real(
        name="Claude",
        registered=("https://claude.ai/api/mcp/auth_callback",),
        redirect_uri="https://claude.ai/api/mcp/auth_callback",
        more=(("scope", "mcp"), ("resource", RESOURCE)),
    ),
    "a plain OAuth client without resource or scope": Real(
        registered=("com.example.app:/cb",), redirect_uri="com.example.app:/cb"
    ),
}


async def request_of(porch: Porch, real: Real) -> tuple[str, str]:
    """Registers the program; its id, and the path that it opens the browser at."""
    program = await porch.program(
        name=real.name,
        kind=real.kind,
        redirect_uris=real.registered,
        **({"client_id": real.client_id} if real.client_id else {}),
    )
    pairs = [*program.request(redirect_uri=real.redirect_uri).items(), *real.more]
    return program.client.id, "/authorize?" + urlencode(pairs)


class Found:
    """Documents that are in the store already."""

    async def ensure(self, client_id: str, *, network: str, signed_in: bool, now: int) -> str | None:
        del client_id, network, signed_in, now
        return None


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_real_program_signs_its_person_in(name: str) -> None:
    real = PROGRAMS[name]
    async with open_porch(documents=Found()) as porch:
        client_id, path = await request_of(porch, real)
        # A probe without cookies, as fastmcp sends it before the browser comes: an answer, and no trace of it.
        probe = await (await porch.browser(signed_in=False)).get(path, site=None, follow=False)
        assert probe.status == 303
        assert location(probe).startswith("/signin?next=/authorize%3F")
        assert await porch.rows("authorization_codes") == []

        browser = await porch.browser(signed_in=False)
        await browser.get(path, site="cross-site")
        assert "Sign in first" in browser.words
        await browser.submit("/signin", name="alice", passphrase="four calm herons wading")
        assert "It may" in browser.words
        allowed = await press(browser, "allow")
        assert location(allowed).startswith(real.redirect_uri + "?code=")
        answer = answer_of(allowed)
        assert (answer["state"], answer["iss"]) == (STATE, porch.identity.parts.site.issuer)

        reply = await porch.post(
            "/token",
            grant_type="authorization_code",
            client_id=client_id,
            code=answer["code"],
            code_verifier=VERIFIER,
            redirect_uri=real.redirect_uri,
            resource=RESOURCE,
        )
        tokens = body_of(reply)
        assert reply.status == 200, tokens
        assert tokens["refresh_token"]
        assert "offline_access" not in tokens["scope"]
        (grant,) = await porch.rows("grants")
        assert (grant["how"], grant["client_id"]) == ("code", client_id)
        (client,) = [row for row in await porch.rows("clients") if row["id"] == client_id]
        assert client["authorized_at"] == porch.clock()


@pytest.mark.parametrize("name", ["Claude Code, registered", "Python SDK 2"])
async def test_a_program_that_is_gone_is_told_400_before_any_browser_comes(name: str) -> None:
    async with open_porch() as porch:
        client_id, path = await request_of(porch, PROGRAMS[name])
        await porch.run("DELETE FROM clients WHERE id = ?", client_id)
        reply = await (await porch.browser(signed_in=False)).get(path, site=None, follow=False)
        assert reply.status == 400
        assert header(reply, "location") is None


async def test_a_program_that_may_only_use_device_codes_is_sent_back_with_an_error() -> None:
    async with open_porch() as porch:
        program = await porch.program(grant_types=(DEVICE_CODE,))
        answer = answer_of(await (await porch.browser()).get(program.path(), follow=False))
        assert answer["error"] == "unauthorized_client"


async def test_the_second_login_of_a_known_web_program_needs_no_page_and_one_with_prompt_consent_does() -> (
    None
):
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=("https://claude.ai/api/mcp/auth_callback",))
        browser = await porch.browser()
        first = await program.agreed(browser)
        again = answer_of(await browser.get(program.path(), follow=False))
        assert again["code"] != first["code"]
        asked = await browser.get(program.path(prompt="consent"), follow=False)
        assert asked.status == 200
        assert CHALLENGE in browser.text
