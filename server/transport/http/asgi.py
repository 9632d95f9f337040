"""An ASGI 3 application as what answers: the pages' framework, and whatever else is written so."""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from .handler import Address, App, Cycle, Message, Resolve, Scope
from .response import BadResponse


class AsgiHandler:
    """Implements `Handler`."""

    __slots__ = ("_app", "_scope", "client")

    def __init__(self, app: App, scope: Scope) -> None:
        self._app = app
        self._scope = scope
        self.client: Final = (
            cast("Address | None", scope["client"]) if scope["state"].get("proxied") else None
        )

    async def answer(self, cycle: Cycle) -> None:
        state = {**self._scope["state"], "request_id": cycle.request_id, "draining": cycle.draining}

        async def send(message: Message) -> None:
            match message["type"]:
                case "http.response.body":
                    await cycle.piece(message.get("body", b""), more=message.get("more_body", False))
                case "http.response.start":
                    await cycle.start(message["status"], message.get("headers", ()))
                case _:
                    raise BadResponse("an ASGI message that was not offered")

        await self._app({**self._scope, "client": cycle.client, "state": state}, cycle.receive, send)

    def done(self, cycle: Cycle, seconds: float) -> None:
        """Nobody asks."""


def hosting(app: App) -> Resolve:
    return partial(AsgiHandler, app)
