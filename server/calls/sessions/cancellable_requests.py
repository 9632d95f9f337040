"""A request while it runs, as far as somebody else can end it: its client by `notifications/cancelled` (basic/utilities/cancellation), or
the server that stops."""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from server.mcp.messages import Notification, RequestId

CANCELLED: Final = "notifications/cancelled"


class RunningRequest:
    """`cancelled`: its client has ended it, and is then not answered. Of one that is cut off it is told so."""

    __slots__ = ("cancelled", "scope")

    def __init__(self) -> None:
        self.scope: Final = trio.CancelScope()
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self.scope.cancel()

    def cut_off(self) -> None:
        """The server does not wait for it any longer."""
        self.scope.cancel()


class _Cancelled(msgspec.Struct, rename="camel"):
    request_id: RequestId


_decode: Final = msgspec.json.Decoder(_Cancelled).decode


def cancelled_by(notification: Notification) -> RequestId | None:
    """Which request it ends; None where it is another notification, or junk."""
    if notification.method != CANCELLED:
        return None
    try:
        return _decode(notification.params).request_id
    except (msgspec.DecodeError, RecursionError):
        return None
