"""What an agent paid for a call, and the receipt that it was given, as the books are told of them."""

from __future__ import annotations

import msgspec

from server.mcp.caller_view import CallerIdentity


class Outlay(msgspec.Struct, frozen=True, kw_only=True):
    """What was paid for one call, as the books are told of it."""

    identifier: str  # of the payment: told of twice, it is booked once
    amount: int  # millionths of a dollar
    network: str  # CAIP-2
    asset: str
    tool: str  # as it is called here
    call_id: str
    caller: CallerIdentity | None
    transaction: str = ""  # as the other side says


class GivenReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt as an upstream gave it with the answer to one call; nothing of it is checked."""

    text: str
    issuer: str  # whose it must be: the origin of the upstream's address, empty where it has none
    upstream: str  # its id, empty for the only one
    tool: str  # as it is called here
    call_id: str
    caller: CallerIdentity | None
