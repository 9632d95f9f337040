"""What there is to say of a server that has been started, or of why it was not."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from server.calls.servers.cannot_start import CannotStart


class StartedServer(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say once the server listens."""

    origin: str  # where a browser or client on this machine reaches it, or the issuer
    paths: tuple[str, ...]
    admin_origin: str | None
    claim_url: str | None  # a secret: for a terminal only
    needs_login: bool
    serves: tuple[str, ...]  # how much, and what of it is out of order
    first_call: str | None  # a call that works as typed, if there is one
    sold: str | None = None  # what costs money here, and to whom it is paid
    certificate: str | None = None  # why https does not answer yet, where it does not


class StartedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """The same, told by one of several processes."""

    started: StartedServer
    listens: list[str]
    boot: str


def first_of(error: BaseException) -> Any:
    """Of a group, the first that it is made of."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def why_not(group: BaseException) -> CannotStart:
    """What whoever started the server is told, of an error that says it."""
    problem = first_of(group)
    hint, details = getattr(problem, "hint", None) or "", getattr(problem, "details", ())
    return CannotStart(str(problem), hint, details, lasting=getattr(problem, "lasting", False))
