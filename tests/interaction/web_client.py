"""A client over HTTP: tests.pair's, in the handshake era with a session."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.interaction.clients import Asked, Client, Next
from tests.pair import Exchange, NodeConversation, encode, next_message, patience


class _WebAsked(Asked):
    def __init__(self, client: WebClient, exchange: Exchange, request_id: Any) -> None:
        self._client = client
        self._exchange = exchange
        self.id = request_id

    async def next(self) -> Any:
        exchange = self._exchange
        with trio.fail_after(patience()):
            await exchange.started.wait()
            self.status = exchange.status
            if exchange.headers.get("content-type") == "application/json":
                return (await exchange.answer()).json
            return await next_message(exchange)

    async def cancel(self) -> None:
        if self._client.modern:
            self._exchange.hang_up()
        else:
            await self._client.note("notifications/cancelled", {"requestId": self.id})
        with trio.fail_after(patience()):
            await self._exchange.ended.wait()

    async def rest(self) -> list[Any]:
        with trio.fail_after(patience()):
            await self._exchange.ended.wait()
            body = (await self._exchange.answer()).body.decode()
        return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]


class WebClient(Client):
    talk: NodeConversation | None = None

    @asynccontextmanager
    async def begins(
        self, method: str, params: Any = None, *, request_id: Any = None
    ) -> AsyncGenerator[Asked]:
        request_id = self._id(request_id)
        body, headers = self._build(method, params, request_id)
        async with self.made.pair.open(body=body, headers=headers | self._own) as exchange:
            yield _WebAsked(self, exchange, request_id)

    async def raw(self, body: bytes) -> Any:
        _, headers = self._build("ping", None, 0)
        answer = await self.made.pair.request(body=body, headers=headers | self._own)
        return answer.json if answer.body else None

    async def send(self, message: Any) -> None:
        _, headers = self._build("ping", None, 0)
        answer = await self.made.pair.request(body=encode(message), headers=headers | self._own)
        assert (answer.status, answer.body) == (202, b"")

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[Next]:
        assert self.talk is not None
        async with self.talk.listens() as stream:
            assert await stream.read() == b": keep-alive\n\n"

            async def next_aside() -> Any:
                with trio.fail_after(patience()):
                    return await next_message(stream)

            yield next_aside

    @property
    def _own(self) -> dict[str, str]:
        return {} if self.talk is None else self.talk.headers
