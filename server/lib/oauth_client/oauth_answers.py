"""The one seam to the network: a request goes out, and its whole answer comes back, or a failure with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from server.lib.json_objects import decode_object

Reason: TypeAlias = Literal[
    "no answer", "status", "no object", "no document", "issuer", "endpoint", "no token", "busy", "unusable client", "refused",
    "resource", "no server"
]  # fmt: skip


class OAuthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was read to its end."""

    status: int
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})  # by their names in small letters

    def __repr__(self) -> str:  # a body may hold tokens
        return f"OAuthAnswer(status={self.status}, {len(self.body)} bytes)"

    def json_object(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raise `OAuthFailure` for anything else."""
        found = decode_object(self.body)
        if found is None:
            raise OAuthFailure("did not answer with a JSON object", reason="no object")
        return found


class Ask(Protocol):
    """One exchange, bounded in size and time, without redirects.

    `OAuthFailure` is raised where there is no answer, or an error of the caller's own, which nothing here catches."""

    async def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> OAuthAnswer: ...


class OAuthFailure(Exception):
    """The failure of a step. The text continues a sentence about the other side; it holds no secret, and no address.

    A caller that says more to people does so by `reason` and what belongs to it: the `place` that was asked, the `status` of its answer,
    the `field` that is wrong, and what the other side says of it, cut and not cleaned. `final`: asking again is in vain until somebody
    does something."""

    def __init__(
        self,
        words: str,
        *,
        reason: Reason = "no answer",
        place: str = "",
        status: int = 0,
        field: str = "",
        error: str = "",
        description: str = "",
        retry_after: str = "",
        final: bool = False,
    ) -> None:
        super().__init__(words)
        self.reason: Reason = reason
        self.place = place
        self.status = status
        self.field = field
        self.error = error
        self.description = description
        self.retry_after = retry_after
        self.final = final
