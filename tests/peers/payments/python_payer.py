"""Pays for one call with a client of the PyPI package x402, the way its users do, and prints what came of it: one JSON object.

usage: PAYER_KEY=0x… python_payer.py httpx|requests|mcp VERSION URL [JSON]

JSON is posted to the address; for mcp it is the call, {"name": …, "arguments": …}. PAYER_HEADERS has more headers, as JSON. With version 1 the
client is not shown the header in which a server speaks version 2.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from typing import Any

import httpx
import requests
from eth_account import Account
from x402 import x402Client, x402ClientSync
from x402.http import x402HTTPClient, x402HTTPClientSync
from x402.http.clients import wrapHttpxWithPayment
from x402.http.clients.requests import x402HTTPAdapter
from x402.mechanisms.evm.exact import register_exact_evm_client

CLIENT, VERSION, URL = sys.argv[1:4]
SENT = json.loads(sys.argv[4]) if len(sys.argv) > 4 else None
HEADERS = json.loads(os.environ.get("PAYER_HEADERS", "{}"))
PATIENCE_SECONDS = 60


def account() -> Any:
    return Account.from_key(os.environ["PAYER_KEY"])


def told(headers: Any) -> Any:
    """What the client is shown of the server's headers."""
    if VERSION == "1":
        headers.pop("payment-required", None)
    return headers


class Plain(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        told(response.headers)
        return response


class Adapter(x402HTTPAdapter):
    def build_response(self, req: Any, resp: Any) -> requests.Response:
        response = super().build_response(req, resp)
        told(response.headers)
        return response


def http_outcome(http: Any, response: Any) -> dict[str, Any]:
    try:
        receipt = http.get_payment_settle_response(response.headers.get).model_dump(
            by_alias=True, exclude_none=True
        )
    except ValueError:
        receipt = None
    return {
        "status": response.status_code,
        "body": response.text,
        "receipt": receipt,
        "failed": response.status_code >= 400,
    }


def body() -> dict[str, Any]:
    return {} if SENT is None else {"json": SENT}


def method() -> str:
    return "GET" if SENT is None else "POST"


async def pay_with_httpx() -> dict[str, Any]:
    client = register_exact_evm_client(x402Client(), account())
    # Its own transport stands on httpx's; ours is put below it.
    wrapped = wrapHttpxWithPayment(client, timeout=PATIENCE_SECONDS, headers=HEADERS)
    wrapped._transport._transport = Plain()
    async with wrapped as web:
        return http_outcome(x402HTTPClient(client), await web.request(method(), URL, **body()))


def pay_with_requests() -> dict[str, Any]:
    client = register_exact_evm_client(x402ClientSync(), account())
    with requests.Session() as web:
        web.trust_env = False
        web.mount("http://", Adapter(client))
        response = web.request(method(), URL, headers=HEADERS, timeout=PATIENCE_SECONDS, **body())
        return http_outcome(x402HTTPClientSync(client), response)


async def pay_over_mcp() -> dict[str, Any]:
    from mcp import ClientSession  # which takes long, and nobody else needs it
    from mcp.client.streamable_http import streamablehttp_client
    from x402.mcp import x402MCPSession

    client = register_exact_evm_client(x402Client(), account())
    async with (
        streamablehttp_client(URL, headers=HEADERS, timeout=PATIENCE_SECONDS) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        paying = x402MCPSession(session, client)
        await paying.initialize()
        # The client waits for ever for an answer of which only a part came.
        patience = timedelta(seconds=PATIENCE_SECONDS)
        result = await paying.call_tool(SENT["name"], SENT.get("arguments"), patience)
        receipt = result.payment_response
        if receipt is not None and not isinstance(receipt, dict):
            receipt = receipt.model_dump(by_alias=True, exclude_none=True)
        return {
            "status": None,
            "body": "".join(getattr(piece, "text", "") for piece in result.content),
            "receipt": receipt,
            "failed": bool(result.is_error),
        }


def main() -> None:
    ways = {"httpx": pay_with_httpx, "mcp": pay_over_mcp}
    try:
        found = pay_with_requests() if CLIENT == "requests" else asyncio.run(ways[CLIENT]())
        found["error"] = None
    except Exception as error:  # what its users would see
        found = {"status": None, "body": None, "receipt": None, "failed": True, "error": words(error)}
    print(json.dumps(found))


def words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
