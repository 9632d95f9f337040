"""A shop as the PyPI package x402 makes them: what the chain, the facilitator and the payers of these tests are tried out on.

usage: reference_shop.py FACILITATOR-URL PAY-TO ATOMIC-AMOUNT. Its first line on stdout is where it listens. `/paid` speaks both versions over HTTP,
`/mcp` the second one over MCP; both say how often they have done what is paid for.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import uvicorn
from mcp.server.fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from x402 import x402ResourceServer
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.http.utils import encode_payment_required_header
from x402.mcp import create_payment_wrapper
from x402.mechanisms.evm.exact import register_exact_evm_server
from x402.schemas import PaymentPayload, PaymentRequirements, ResourceInfo
from x402.schemas.v1 import PaymentPayloadV1, PaymentRequirementsV1

FACILITATOR, PAY_TO, AMOUNT = sys.argv[1:4]
DOLLAR = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
WINDOW_SECONDS = 300

facilitator = HTTPFacilitatorClient(FacilitatorConfig(url=FACILITATOR))
shop = register_exact_evm_server(x402ResourceServer(facilitator))
shop.initialize()
served = count(1)
terms = {
    "scheme": "exact",
    "asset": DOLLAR,
    "payTo": PAY_TO,
    "maxTimeoutSeconds": WINDOW_SECONDS,
    "extra": {"name": "USDC", "version": "2"},
}
second = PaymentRequirements.model_validate(terms | {"network": "eip155:84532", "amount": AMOUNT})
server = FastMCP("shop", stateless_http=True, json_response=True)


@server.tool()
@create_payment_wrapper(shop, accepts=[second])
async def paid(text: str) -> str:
    return json.dumps({"text": text, "served": next(served)})


@server.custom_route("/paid", methods=["GET", "POST"])
async def bought(request: Request) -> Response:
    resource = str(request.url)
    first = PaymentRequirementsV1.model_validate(
        terms
        | {"network": "base-sepolia", "maxAmountRequired": AMOUNT, "resource": resource}
        | {"description": "", "mimeType": "application/json"}
    )
    if "payment-signature" in request.headers:
        payment = PaymentPayload.model_validate(shown(request, "payment-signature"))
        return await sold(payment, second, shop.verify_payment, shop.settle_payment, "PAYMENT-RESPONSE")
    if "x-payment" in request.headers:
        old = PaymentPayloadV1.model_validate(shown(request, "x-payment"))
        return await sold(old, first, facilitator.verify, facilitator.settle, "X-PAYMENT-RESPONSE")
    required = await shop.create_payment_required_response([second], ResourceInfo(url=resource))
    said = {
        "x402Version": 1,
        "error": "payment required",
        "accepts": [first.model_dump(by_alias=True, exclude_none=True)],
    }
    return JSONResponse(said, 402, {"PAYMENT-REQUIRED": encode_payment_required_header(required)})


def shown(request: Request, header: str) -> Any:
    return json.loads(base64.b64decode(request.headers[header]))


Step = Callable[[Any, Any], Awaitable[Any]]


async def sold(payment: Any, terms: Any, verify: Step, settle: Step, header: str) -> Response:
    verified = await verify(payment, terms)
    if not verified.is_valid:
        return JSONResponse({"error": verified.invalid_reason}, 402)
    said = {"served": next(served)}
    settled = await settle(payment, terms)
    receipt = settled.model_dump_json(by_alias=True, exclude_none=True)
    headers = {header: base64.b64encode(receipt.encode()).decode()}
    if not settled.success:
        return JSONResponse({"error": settled.error_reason}, 402, headers)
    return JSONResponse(said, 200, headers)


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run([listening])


if __name__ == "__main__":
    main()
