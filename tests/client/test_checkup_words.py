"""Words in which `doctor URL` says what a client sees of a server: whole, in tests/snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
from fake_server import FakeServer, Response, as_json
from scripted_client import ScriptedClient
from test_access_token import stored
from test_public_address import IN_CLEAR, NAME, REDIRECT, Names, listening, steps_at, with_certificate
from test_server_checkup import ASM, PRM, saying

from server.cli.doctor.doctor_seller import seller_steps
from server.client.check_step import CheckStep
from server.client.http_exchange import open_client
from server.client.public_address import plain_http
from server.client.seller_terms import Seller
from server.client.server_checkup import examine
from server.client.token_file import TokenFile
from server.payments.x402.payment_headers import challenge_header
from server.payments.x402.requirements import PaidResource, payment_required
from tests.payments.x402.builders import offer
from tests.snapshots import Snapshot, ToldOnce

CALLS = "http://shop.example/call/"
PRICED: dict[str, Any] = {
    "name": "look",
    "_meta": {"io.ostiary/price": {"amount": "0.01", "words": "$0.01 a call"}},
}


class Checkups(ToldOnce):
    """Servers, and the steps that were seen of them."""

    def seen(self, what: str, steps: Iterable[CheckStep]) -> None:
        rows = [
            f"{step.state} {step.name}: {step.detail}" + (f"\n  hint: {step.hint}" if step.hint else "")
            for step in steps
        ]
        self.note(what, *rows)


@pytest.mark.slow
async def test_what_is_said_of_a_server_step_by_step(
    fake: FakeServer, file: TokenFile, tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSTIARY_CONFIG_HOME", str(tmp_path / "nobody"))
    book = Checkups()
    await _logins(book, fake, file)
    await _addresses(book, tmp_path)
    await _prices(book)
    snapshot("doctor_of_a_server", book.text)


async def _logins(book: Checkups, fake: FakeServer, file: TokenFile) -> None:
    book.hidden = {fake.origin: "ORIGIN", fake.origin.rpartition(":")[2]: "PORT"}

    async def note(what: str, *changes: tuple[str, Response], **metadata: Any) -> None:
        fake.overrides = {path: saying(response) for path, response in changes}
        fake.metadata |= metadata
        with trio.fail_after(60):
            book.seen(what, [step async for step in examine(fake.url, file)])

    stored(fake, file)
    await note("a good server, and a login")
    stored(fake, file)
    fake.refresh_token = "another"
    await note("a login that has ended")
    for login in file.all():
        file.drop(login.url)
    await note("no login")
    await note("no metadata in its challenge", ("/mcp", as_json({}, 401, WWW_Authenticate="Bearer")))
    await note("a server that is broken", ("/mcp", Response(500)))
    await note("a page", ("/mcp", Response(200, b"<html>")))
    await note("metadata that is broken", (PRM, Response(500)))
    await note("no metadata", (PRM, Response(404)), (PRM.removesuffix("/mcp"), Response(404)))
    await note("no authorization server", (ASM, Response(404)))
    await note("another authorization server", (ASM, as_json({"issuer": "https://other.example"})))
    for answer in (Response(404), Response(200, b"{}"), Response(503)):
        await note(f"device codes with status {answer.status}", ("/device_authorization", answer))
    await note("neither codes nor browser", grant_types_supported=["client_credentials"])
    fake.browser_only()
    await note("a browser alone")
    for status in (404, 429, 500):
        await note(f"a page with status {status}", ("/authorize", Response(status)))
    await note("answers without its name", authorization_response_iss_parameter_supported=False)
    await note("no PKCE", code_challenge_methods_supported=["plain"])
    fake.browser_only()
    del fake.metadata["registration_endpoint"]
    await note("programs that are added by hand", client_id_metadata_document_supported=True)
    fake.login_needed = False
    await note("no login needed")


async def _addresses(book: Checkups, folder: Path) -> None:
    book.seen("a name that nobody knows", await steps_at("https://other.example.org/mcp"))
    book.seen("nobody there", await steps_at(f"https://{NAME}:1/mcp", "127.0.0.1"))
    book.seen(
        "nobody there, of this network", await steps_at(f"https://{NAME}:1/mcp", "127.0.0.1", "127.0.0.9")
    )
    for what, host, hours, trusted in (
        ("a certificate of an hour", NAME, 1.5, True),
        ("of 99 days", NAME, 99 * 24 + 1, True),
        ("of another name", "other.example.org", 1, True),
        ("of nobody", NAME, 1, False),
        ("that is over", NAME, -1, True),
    ):
        server, client = with_certificate(folder, host, ends_in_hours=hours)
        async with listening(context=server) as port:
            book.hidden = {f":{port}": ":PORT", f"port {port}": "port PORT"}
            steps = await steps_at(
                f"https://{NAME}:{port}/mcp", "127.0.0.1", "127.0.0.9", trust=client if trusted else None
            )
        book.seen(what, steps)
    for what, answer in {
        "no TLS": IN_CLEAR,
        "no certificate yet": b"\x15\x03\x03\x00\x02\x02\x70",
        "nothing": b"",
    }.items():
        async with listening(answer) as port:
            book.hidden = {f":{port}": ":PORT", f"port {port}": "port PORT"}
            book.seen(what, await steps_at(f"https://{NAME}:{port}/mcp", "127.0.0.1"))
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    for what, answer in {"led on": REDIRECT, "in clear": IN_CLEAR, "nobody": b""}.items():
        async with listening(answer) as port, open_client() as client:
            book.seen(f"without https: {what}", [await plain_http(client, NAME, port if answer else 1)])


async def _prices(book: Checkups) -> None:
    async def note(what: str, status: int, tools: Any, *, offers: bool = True, **seller: Any) -> None:
        asked = payment_required((offer(),), PaidResource(url=CALLS), "pay first")
        headers = dict([challenge_header(asked)]) if offers else {}

        client = ScriptedClient(lambda asked: (status, {}, headers))
        book.seen(what, await seller_steps(client, Seller(calls=CALLS, **seller), tools))

    free = {"name": "free"}
    await note("tools that are not shown", 402, None)
    await note("nothing that costs", 402, [free], nameless=True)
    await note("sold to all", 402, [PRICED, free], nameless=True, deposits="http://shop.example/deposit")
    await note("sold to who logs in", 401, [PRICED])
    await note("many that cost", 402, [{**PRICED, "name": f"look_{number}"} for number in range(7)])
    await note("from a balance alone", 401, [PRICED], offers=False)
    await note("no way to pay", 402, [PRICED], offers=False)
    await note("another status", 500, [PRICED])
