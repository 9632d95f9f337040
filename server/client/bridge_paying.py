"""`ostiary connect --pay`: calls of the client's that have a price are paid for on the way, and the client sees their answers only.

A call that was not paid is answered with the reason, as a tool's failure: whoever reads that can do something about it. What is paid, and
when it is not, is decided in server/payments/buyer. Loaded only by a bridge that pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from server.client.bridge_messages import BridgedRequest
from server.lib.json_objects import mapping
from server.lib.surrogates import decode_mended
from server.payments.buyer.payer import PaidCall, Payer
from server.payments.buyer.spending_policy import CannotPay

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Purse:
    def __init__(self, payer: Payer, url: str, say: Callable[[str], None]) -> None:
        self._payer = payer
        self._url = url
        self._say = say

    async def purchase(self, asking: BridgedRequest) -> BridgedPurchase | None:
        """None where nothing could have a price, and where the client pays by itself."""
        name = asking.params.get("name")
        if asking.method != "tools/call" or not isinstance(name, str):
            return None
        if any(key.startswith("x402") for key in mapping(asking.params.get("_meta"))):
            return None
        arguments = asking.params.get("arguments", {})
        paid = self._payer.call(self._url, f"the tool `{name}`", [name, arguments])
        try:
            await paid.begin()
        except CannotPay as error:
            self._say(f"not paid: {error}")
            return None
        return BridgedPurchase(asking, paid, self._say)


class BridgedPurchase:
    """One call, sent again as often as `again` says so after its exchange."""

    def __init__(self, asking: BridgedRequest, paid: PaidCall, say: Callable[[str], None]) -> None:
        self.again = False
        self._asking = asking
        self._paid = paid
        self._say = say

    def turn(self) -> BridgedRequest:
        """What is to be sent now: the client's request, with the payment if there is one."""
        self.again = False
        meta = self._paid.meta
        return (
            msgspec.structs.replace(self._asking, line=_with_meta(self._asking.line, meta))
            if meta
            else self._asking
        )

    async def revise(self, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the client is answered; None: nothing yet, for now it is paid."""
        error = answer.get("error")
        try:
            if isinstance(error, dict):
                self.again = await self._paid.again_after_error(mapping(error))
            else:
                self.again = await self._paid.again(mapping(answer.get("result")))
        except CannotPay as problem:
            text = f"{problem}; {problem.hint}" if problem.hint else str(problem)
            self._say(f"not paid: {text}")
            result: dict[str, Any] = {
                "content": [{"type": "text", "text": f"Not paid: {text}."}],
                "isError": True,
            }
            if self._asking.modern:
                result["resultType"] = "complete"
            return {"jsonrpc": "2.0", "id": answer.get("id"), "result": result}
        return None if self.again else answer


def _with_meta(line: bytes, more: Mapping[str, Any]) -> bytes:
    """The message with more in its `_meta`, and all else as it was written."""
    message = decode_mended(_fields, line)
    params = decode_mended(_fields, message["params"])
    meta = decode_mended(_fields, params["_meta"]) if "_meta" in params else {}
    meta |= {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in more.items()}
    params["_meta"] = msgspec.Raw(msgspec.json.encode(meta))
    message["params"] = msgspec.Raw(msgspec.json.encode(params))
    return msgspec.json.encode(message)
