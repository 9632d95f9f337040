"""The proof of a key on its way in: which request it is about, and that a request which runs on keeps the one it came with."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from auth.model import ANONYMOUS, Principal
from auth.tokens.dpop import Presented
from server.http.guard import Admitted
from server.http.reply import Reply
from server.http.visit import Threshold, Visit, joined

Sent = list[MutableMapping[str, Any]]


async def admitted(
    headers: list[tuple[bytes, bytes]], method: str = "POST"
) -> tuple[Visit | None, list[Presented | None], Sent]:
    proofs: list[Presented | None] = []
    sent: Sent = []

    async def authenticate(authorization: str | None, *, proof: Presented | None, **_: object) -> Principal:
        del authorization
        proofs.append(proof)
        return ANONYMOUS

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    def forbid(*_: object, **__: object) -> Any:
        raise AssertionError("nothing is forbidden here")

    threshold = Threshold(
        name="main",
        guard=lambda _scope, _headers: Admitted(origin="http://127.0.0.1:8420", cors=b"http://a.example"),
        authenticate=authenticate,
        forbid=forbid,
    )
    scope = {
        "type": "http",
        "method": method,
        "path": "/mcp",
        "headers": headers,
        "state": {},
        "client": None,
    }
    visit = await threshold.admit(scope, receive, Reply(send, accept=None), joined(headers))
    return visit, proofs, sent


async def test_a_proof_is_handed_on_with_the_method_of_its_request() -> None:
    for method in ("POST", "GET", "DELETE"):
        visit, proofs, _ = await admitted([(b"authorization", b"DPoP t"), (b"dpop", b"a.b.c")], method)
        assert proofs == [Presented("a.b.c", method)]
        assert visit is not None
        assert await visit.still_allowed()
        assert proofs[1:] == [Presented("a.b.c", method, again=True)]


async def test_a_request_without_a_proof_has_none() -> None:
    visit, proofs, _ = await admitted([(b"authorization", b"Bearer t")])
    assert visit is not None
    assert await visit.still_allowed()
    assert proofs == [None, None]


async def test_two_proofs_come_as_one_that_is_none() -> None:
    _, proofs, _ = await admitted([(b"dpop", b"a.b.c"), (b"dpop", b"a.b.c")])
    assert proofs == [Presented("a.b.c, a.b.c", "POST")]


async def test_a_page_of_an_allowed_origin_may_send_one() -> None:
    _, _, sent = await admitted([(b"origin", b"http://a.example")], "OPTIONS")
    headers = dict(sent[0]["headers"])
    assert b"DPoP" in headers[b"access-control-allow-headers"].split(b", ")
