"""The proof of a key on its way in: which request it is about, and that a request which runs on keeps the one it came with."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, cast

import trio
from loopback_server import capturing

from auth.tokens.presented_credentials import Presentation, PresentedProof
from auth.values.identity_model import ANONYMOUS, Principal
from server.transport.admission.bearer_check import Admission, EntryRefusal
from server.transport.http.allowed_hosts import OwnRequest
from server.transport.http.entry import Threshold
from server.transport.http.mcp_request import McpRequest, leading_to
from tests.served import FakeDoorkeeper, asgi

Sent = list[MutableMapping[str, Any]]


async def admitted(
    headers: list[tuple[bytes, bytes]], method: str = "POST", who: Principal | EntryRefusal = ANONYMOUS
) -> tuple[McpRequest | None, list[PresentedProof | None], Sent]:
    proofs: list[PresentedProof | None] = []
    sent: Sent = []
    visits: list[McpRequest] = []

    async def authenticate(shown: Presentation) -> Principal | EntryRefusal:
        proofs.append(shown.proof)
        return who

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def serve(visit: McpRequest) -> None:
        visits.append(visit)

    def forbid(*_: object, **__: object) -> Any:
        raise AssertionError("nothing is forbidden here")

    threshold = Threshold(
        name="main",
        guard=lambda _scope, _headers: OwnRequest(origin="http://127.0.0.1:8420", cors=b"http://a.example"),
        doorkeeper=cast("Admission", FakeDoorkeeper(authenticate, forbid)),
        log=capturing()[0],
    )
    scope = {
        "type": "http",
        "method": method,
        "path": "/mcp",
        "headers": headers,
        "state": {"request_id": "r", "draining": trio.Event()},
        "client": None,
    }
    await asgi(leading_to(serve, threshold))(scope, receive, send)
    return visits[0] if visits else None, proofs, sent


async def test_a_proof_is_handed_on_with_the_method_of_its_request() -> None:
    for method in ("POST", "GET", "DELETE"):
        visit, proofs, _ = await admitted([(b"authorization", b"DPoP t"), (b"dpop", b"a.b.c")], method)
        assert proofs == [PresentedProof("a.b.c", method)]
        assert visit is not None
        assert await visit.still_allowed()
        assert proofs[1:] == [PresentedProof("a.b.c", method, again=True)]


async def test_a_request_without_a_proof_has_none() -> None:
    visit, proofs, _ = await admitted([(b"authorization", b"Bearer t")])
    assert visit is not None
    assert await visit.still_allowed()
    assert proofs == [None, None]


async def test_two_proofs_come_as_one_that_is_none() -> None:
    _, proofs, _ = await admitted([(b"dpop", b"a.b.c"), (b"dpop", b"a.b.c")])
    assert proofs == [PresentedProof("a.b.c, a.b.c", "POST")]


async def test_the_nonce_that_the_next_proof_needs_comes_with_the_refusal_and_pages_may_read_it() -> None:
    refusal = EntryRefusal(401, 'DPoP error="use_dpop_nonce"', b"{}", nonce="n-1")
    shown = [(b"authorization", b"DPoP t"), (b"dpop", b"a.b.c"), (b"origin", b"http://a.example")]
    visit, _, sent = await admitted(shown, who=refusal)
    assert visit is None
    headers = dict(sent[0]["headers"])
    assert (sent[0]["status"], headers[b"dpop-nonce"]) == (401, b"n-1")
    assert headers[b"www-authenticate"] == b'DPoP error="use_dpop_nonce"'
    assert b"DPoP-Nonce" in headers[b"access-control-expose-headers"].split(b", ")


async def test_a_page_of_an_allowed_origin_may_send_one() -> None:
    _, _, sent = await admitted([(b"origin", b"http://a.example")], "OPTIONS")
    headers = dict(sent[0]["headers"])
    assert b"DPoP" in headers[b"access-control-allow-headers"].split(b", ")
