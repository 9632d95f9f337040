"""The deposit of money on a balance: one payment to `POST /SERVER/deposit`, and, for somebody without a login, the token that it buys.

If a payment was sent and no answer came, the next deposit of the same amount sends that payment again (server/payments/buyer). So
nothing counts as answered before it is stored here: first the token is stored, then the payment is closed. Only code that pays loads
this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from server.client.access_token import Access, wall_clock
from server.client.client_errors import BadAnswer, ClientError, NotLoggedIn
from server.client.device_login import login_from, remember
from server.client.discovery import Place
from server.client.http_exchange import exchange
from server.client.oauth_exchange import oauth_trouble
from server.client.token_file import TokenFile
from server.lib.http_client.http_client import HttpAnswer, HttpClient
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.client_identity import NONE, ClientIdentity
from server.lib.oauth_client.proof_key import headers_of, only_wants_nonce
from server.lib.oauth_client.token_requests import read_tokens
from server.lib.secret import Secret
from server.payments.buyer.payer import PaidCall

# As long as a server may take that waits for its facilitator, and that one for its chain.
ANSWER_SECONDS: Final = 180.0
# Unpaid and paid, each perhaps with a renewed token and with another nonce.
TRIES: Final = 6
SHOWN_AGAIN: Final = "make the same deposit again: it shows the same payment, and pays no second time"
WORD_CHARACTERS: Final = 200
WORDS_CHARACTERS: Final = 500

# Puts what an answer holds where it survives.
Keep = Callable[[HttpAnswer, Mapping[str, Any]], Awaitable[None]]


class DepositMade(msgspec.Struct, frozen=True, kw_only=True):
    """A deposit that was made, in the words of the server's answer."""

    deposited: str
    balance: str
    wallet: str
    payment: str
    network: str
    transaction: str
    brought_token: bool
    replayed: bool  # this payment had been deposited before
    message: str = ""


async def make_deposit(
    client: HttpClient,
    address: str,
    amount: str,
    *,
    paid: PaidCall,
    access: Access,
    keep: Keep | None,
) -> DepositMade:
    """Make a deposit of `amount` at `address`, the deposit endpoint, and return what came of it.

    Raise `CannotPay` or a `ClientError`; a repetition of the deposit then sends the same payment again, if one was signed. `access` is
    the login at the server. `keep` stores the token that the answer brings; if it is None, that token is not wanted.
    """
    await paid.begin()
    try:
        return await _settled(client, address, amount, paid, access, keep)
    except ClientError as error:
        if paid.paying and error.hint is None:
            error.hint = SHOWN_AGAIN
        raise


async def keep_bought_token(
    client: HttpClient, file: TokenFile, place: Place, answer: HttpAnswer, told: Mapping[str, Any]
) -> None:
    """Store the token that a deposit bought as a login at `place`. Raise `BadAnswer` if the answer holds no usable token or client id.

    The answer names the client of the token; the token endpoint was discovered before anything was paid.
    """
    named, endpoint = told.get("client_id"), place.server.token_endpoint
    if not isinstance(named, str) or not 0 < len(named) <= WORD_CHARACTERS or not named.isprintable():
        raise BadAnswer(f"{host_of(endpoint)} does not say whose its token is")
    with oauth_trouble(endpoint):
        tokens = read_tokens(told)
    login = login_from(
        place,
        tokens,
        asked_scope="",
        now=wall_clock(),
        identity=ClientIdentity(client_id=named, method=NONE),
    )
    await remember(client, file, login)


async def _settled(
    client: HttpClient, address: str, amount: str, paid: PaidCall, access: Access, keep: Keep | None
) -> DepositMade:
    body = msgspec.json.encode({"amount": amount})
    token = await access.token()
    renewed = False
    for _ in range(TRIES):
        answer = await _ask(client, address, body, token, paid)
        if answer.status == 401:
            if only_wants_nonce(token, address, answer.head):
                continue
            if token is None or renewed:
                raise await _not_let_in(address, access, shown=token is not None)
            token, renewed = await access.renew(token), True
            continue
        told = answer.json_object() or {}
        made = _read(told, answer) if answer.status == 200 else None
        if answer.status == 200 and made is None:
            raise BadAnswer(f"{host_of(address)} does not say what became of the deposit", hint=SHOWN_AGAIN)
        if made is not None and made.brought_token and keep is not None:
            await keep(answer, told)
        if await paid.again_over_http(answer.status, partial(_header, answer), answer.body):
            continue
        if made is None:
            raise _refused(address, answer, told)
        return made
    raise BadAnswer(f"{host_of(address)} does not come to the end of a deposit")


async def _ask(
    client: HttpClient, address: str, body: bytes, token: Secret | None, paid: PaidCall
) -> HttpAnswer:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        **headers_of(token, "POST", address),
        **dict(paid.headers),
    }
    return await exchange(client, "POST", address, headers=headers, content=body, seconds=ANSWER_SECONDS)


def _header(answer: HttpAnswer, name: str) -> str:
    return answer.head.value(name.lower().encode())


def _read(told: Mapping[str, Any], answer: HttpAnswer) -> DepositMade | None:
    def word(name: str, limit: int = WORD_CHARACTERS) -> str:
        value = told.get(name)
        return value[:limit] if isinstance(value, str) else ""

    if not word("deposited") or not word("balance"):
        return None
    return DepositMade(
        deposited=word("deposited"),
        balance=word("balance"),
        wallet=word("wallet"),
        payment=word("payment"),
        network=word("network"),
        transaction=word("transaction"),
        brought_token="access_token" in told,
        replayed=bool(answer.head.value(b"x-x402-idempotent")),
        message=word("message", WORDS_CHARACTERS),
    )


async def _not_let_in(address: str, access: Access, *, shown: bool) -> NotLoggedIn:
    nobody = await access.not_logged_in()
    return (
        NotLoggedIn(f"{host_of(address)} does not accept this login", hint=nobody.hint) if shown else nobody
    )


def _refused(address: str, answer: HttpAnswer, told: Mapping[str, Any]) -> ClientError:
    """Return the error for a deposit that the server refused, in its own words if it sent some."""
    said: Any = told.get("error_description") or told.get("error")
    words = said[:WORDS_CHARACTERS] if isinstance(said, str) else ""
    if answer.status == 404:
        return BadAnswer(f"{host_of(address)} takes no deposits")
    return BadAnswer(words or f"{host_of(address)} answers a deposit with status {answer.status}")
