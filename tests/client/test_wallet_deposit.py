"""What counts as the answer to a deposit: nothing else ends the payment that was made for it."""

from __future__ import annotations

from typing import Any

import pytest
from fake_server import FakeServer, Response, Seen

from server.client.access_token import Access
from server.client.client_errors import BadAnswer
from server.client.token_file import TokenFile
from server.client.wallet_deposit import SHOWN_AGAIN, make_deposit
from server.lib.http_client.http_client import HttpClient

PATH = "/shop/deposit"


class Signed:
    """Stands in for a payment that was signed and is shown."""

    headers = (("payment-signature", "signed"),)
    paying = True

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []  # which it was given: the first ends it

    async def begin(self) -> None: ...

    async def again_over_http(self, status: int, _header: object, body: bytes) -> bool:
        self.answers.append((status, body))
        return False


async def deposit(signed: Signed, client: HttpClient, fake: FakeServer, file: TokenFile, body: bytes) -> None:
    async def answer(request: Seen) -> Response:
        assert request.headers["payment-signature"] == "signed"
        return Response(200, body)

    fake.overrides[PATH] = answer
    paid: Any = signed
    access = Access(file, fake.url, client=client)
    await make_deposit(client, fake.origin + PATH, "$0.02", paid=paid, access=access, keep=None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"deposited": 5, "balance": "$1"}',
        b'{"deposited": "$0.02"}',
        b'{"balance": "$1"}',
        b'{"deposited": "", "balance": "$1"}',
        b"\xff",
    ],
)
async def test_a_good_status_with_nothing_in_it_ends_no_payment(
    client: HttpClient, fake: FakeServer, file: TokenFile, body: bytes
) -> None:
    signed = Signed()
    with pytest.raises(BadAnswer, match="what became of the deposit") as problem:
        await deposit(signed, client, fake, file, body)
    assert problem.value.hint == SHOWN_AGAIN
    assert signed.answers == []


async def test_an_answer_that_says_what_became_of_it_ends_the_payment(
    client: HttpClient, fake: FakeServer, file: TokenFile
) -> None:
    body = b'{"deposited": "$0.02", "balance": "$1.02"}'
    signed = Signed()
    await deposit(signed, client, fake, file, body)
    assert signed.answers == [(200, body)]
