"""A client of either era, whatever the wire: what tests ask of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import trio

from tests.interaction.agents import House
from tests.pair import legacy, modern, patience
from tests.requirements import Cell

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Reply(NamedTuple):
    message: Any  # the response
    before: list[Any]  # what was sent for the request before it
    status: int | None = None  # HTTP's

    @property
    def result(self) -> Any:
        assert "result" in self.message, self.message
        return self.message["result"]

    @property
    def error(self) -> Any:
        assert "error" in self.message, self.message
        return self.message["error"]

    @property
    def code(self) -> int:
        return self.error["code"]

    @property
    def text(self) -> str:
        return self.result["content"][0]["text"]


class Asked(ABC):
    """A request under way."""

    id: Any

    @abstractmethod
    async def next(self) -> Any:
        """The next message that is sent for it."""

    @abstractmethod
    async def cancel(self) -> None:
        """As the era and the wire have it."""

    @abstractmethod
    async def rest(self) -> list[Any]:
        """Everything that is still sent for it, when nothing more is going to happen."""

    status: int | None = None

    async def reply(self) -> Reply:
        before: list[Any] = []
        while "method" in (message := await self.next()):
            before.append(message)
        return Reply(message, before, self.status)


Next = Callable[[], Any]


class Client(ABC):
    """`capabilities` are what it declares: once, or with each request."""

    def __init__(self, cell: Cell, made: House, capabilities: Mapping[str, Any]) -> None:
        self.cell = cell
        self.made = made
        self.capabilities = capabilities
        self.welcome: Any = None  # the answer to `initialize`
        self._asked = 100

    @property
    def modern(self) -> bool:
        return self.cell.modern

    @abstractmethod
    def begins(
        self, method: str, params: Any = None, *, request_id: Any = None
    ) -> AbstractAsyncContextManager[Asked]: ...

    @abstractmethod
    async def raw(self, body: bytes) -> Any:
        """Anything, as it is; what is answered, or None."""

    @abstractmethod
    async def send(self, message: Any) -> None:
        """A notification or a response, which nothing is answered to."""

    @abstractmethod
    def aside(self) -> AbstractAsyncContextManager[Next]:
        """What belongs to no request (handshake era)."""

    async def ask(self, method: str, params: Any = None, *, request_id: Any = None) -> Reply:
        with trio.fail_after(patience()):
            async with self.begins(method, params, request_id=request_id) as asked:
                return await asked.reply()

    async def call(self, tool: str, arguments: Any = None, **more: Any) -> Reply:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments or {}, **more})

    async def note(self, method: str, params: Any = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def answer(self, request: Any, **what: Any) -> None:
        """To a request of the server's."""
        await self.send({"jsonrpc": "2.0", "id": request["id"], **what})

    def _id(self, wanted: Any) -> Any:
        self._asked += 1
        return self._asked if wanted is None else wanted

    def _build(self, method: str, params: Any, request_id: Any) -> tuple[bytes, dict[str, str]]:
        if not self.modern:
            return legacy(method, params, request_id=request_id)
        params = {**(params or {})}
        params["_meta"] = {CAPABILITIES: self.capabilities, **params.get("_meta", {})}
        body, headers = modern(method, params, request_id=request_id)
        if "taskId" in params:
            headers["mcp-name"] = params["taskId"]
        return body, headers
