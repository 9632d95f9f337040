"""The HTTP address at which an agent answers: settings, credentials and failures, for every chat back-end.

A caller is told of a failure in the founding tutorial's words: "agent endpoint <status>: <the first 200 characters>", "agent
returned empty response".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import msgspec
import trio
from msgspec import Meta

from server.agents.base.agent_faults import TroubleWatch, is_trouble
from server.agents.base.agent_wallet import PayConfig, pay_problems
from server.agents.base.backend import AgentRequest, Unreached
from server.lib.http_client.failures import DeadlinePassed, FetchFailed, NotConnected
from server.lib.http_client.fetch import Fetcher, UpstreamAnswer, header_line
from server.lib.rates.fair_turns import TURN_SECONDS, NoTurn, Turns
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError, Busy
from server.mcp.result_encoding import ToolResult, failed_result
from server.settings.header_settings import header_problems, is_sendable
from server.settings.secret_reference import SecretUnreadable

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall, Payer
    from server.payments.buyer.spending_policy import CannotPay

SHOWN_CHARACTERS = 200  # of a body that explains a failure; longer ones are pages of HTML
ERROR_BYTES = 64 * 1024  # enough to find the message in an error document
ANSWER_BYTES = 4 * 1024 * 1024  # a reply is text that a model reads; this is far more than any reads
# Each piece of a streamed reply comes in an event of some 200 bytes, most of it not text.
STREAM_BYTES = 64 * 1024 * 1024
# For a connection, and no more: whoever asks waits for it.
REACH_SECONDS = 5.0
REFUSES_US = frozenset({401, 403})
# Often enough to show that it is alive; a client does not want one for every word.
PROGRESS_SECONDS = 1.0
# Shorter values are words, not credentials; blotting them out would only garble the text.
MASKED_CHARACTERS = 4

WHAT = "a reply of an agent"  # is bought


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that all HTTP back-ends have. Credentials are references here, never values."""

    headers: Annotated[
        Mapping[str, str],
        Meta(description='a table of headers, e.g. { authorization = "Bearer env:AGENT_KEY" }'),
    ] = MappingProxyType({})
    deadline_seconds: Annotated[float, Meta(ge=1, le=3600, description="seconds from 1 to 3600")] = 60.0
    max_connections: Annotated[int, Meta(ge=1, le=1024, description="a number from 1 to 1024")] = 64
    ca_file: Annotated[str, Meta(max_length=4096, description="the path of PEM certificates to trust")] = ""
    stream: Annotated[bool, Meta(description="true or false")] = False
    tool_name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.-]{1,64}$",
            description="1 to 64 letters, digits, dots, dashes, underscores",
        ),
    ] = "chat_with_agent"
    tool_title: Annotated[str, Meta(max_length=100, description="a short title for people")] = (
        "Chat with the agent"
    )
    tool_description: Annotated[
        str, Meta(max_length=4000, description="what the calling model should know of the agent")
    ] = ""

    pay: Annotated[PayConfig, Meta(description="a table, [server.agent.pay]")] = PayConfig()

    def __repr__(self) -> str:  # headers may hold a literal that should have been a reference
        return f"{type(self).__name__}(tool_name={self.tool_name!r}, headers={sorted(self.headers)!r})"


def endpoint_problems(config: EndpointConfig) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold. Holds no header value."""
    return header_problems(config.headers) + pay_problems(config.pay)


class AgentEndpoint:
    """The address of one agent: sends one JSON document and gives back the answer, or raises what the caller should read."""

    def __init__(
        self,
        url: str,
        config: EndpointConfig,
        headers: Mapping[str, Secret],
        *,
        explain: Callable[[bytes], str] = lambda body: body.decode("utf-8", "replace"),
        payer: Payer | None = None,
    ) -> None:
        """Prepare requests. `explain` finds the message in the body of a failure. Without `payer` a price is a failure like
        any other. Raises `SecretUnreadable` for a header that cannot be sent, and `ValueError` for an address or CA file
        that cannot be used."""
        for name, value in headers.items():
            if not is_sendable(value.reveal()):
                raise SecretUnreadable(f"the value for the header {name} is not plain ASCII text of one line")
        self._fetcher = Fetcher(
            url,
            connections=config.max_connections,
            ca_file=Path(config.ca_file).expanduser() if config.ca_file else None,
        )
        self.turns = Turns(
            config.max_connections
        )  # so that nobody waits in the fetcher, where callers are not told apart
        sent = tuple((name, value.reveal()) for name, value in headers.items())
        self._sent = sent
        self._head = self._prepare("application/json", sent)
        self._streaming_head = self._prepare("text/event-stream, application/json", sent)
        self._encode = msgspec.json.Encoder().encode
        self._masks = _masks(value for _, value in sent)
        self._seconds = config.deadline_seconds
        self._explain = explain
        self._url = url
        self._payer = payer
        self.trouble = TroubleWatch()

    def deadline(self) -> float:
        """Return the deadline of a call that begins now, on trio's clock."""
        return trio.current_time() + self._seconds

    async def take_turn(self, call: AgentRequest, deadline: float) -> float:
        """Take a place among the calls that run at once, until it is given back to `turns`. Returns the deadline from now on: a task waits as
        long as it takes and has its time afterwards. Raises `Busy`."""
        if self.turns.take_nowait(call.sharer):
            return deadline
        left = max(0.0, deadline - trio.current_time())
        try:
            await self.turns.take(call.sharer, seconds=min(TURN_SECONDS, left), unhurried=call.unhurried)
        except NoTurn as error:
            raise Busy(str(error)) from error
        return self.deadline() if call.unhurried else deadline

    def too_slow(self) -> ToolResult:
        # The tool ran and failed: the agent may be at work still, so this is a result and not a refusal.
        return failed_result(f"agent did not answer within {self._seconds:g} s")

    async def paid_call(self, subject: str, wish: object, note: str = "") -> PaidCall | None:
        """Begin a call that may be paid for; None without a wallet. A `wish` that its subject had before is the same call;
        its `note` is then that of the first time. Raises `BackendError`."""
        if self._payer is None:
            return None
        from server.payments.buyer.spending_policy import CannotPay

        paid = self._payer.call(self._url, WHAT, [subject, wish], note=note)
        try:
            await paid.begin()
        except CannotPay as problem:
            raise self._unpaid(problem) from None
        return paid

    async def ask(
        self, document: object, *, call_id: str, deadline: float, paid: PaidCall | None = None
    ) -> bytes:
        """Return the whole body of an answer of status 2xx. Raises `BackendError`, also where it is empty, and
        `DeadlinePassed`."""
        head, body = self._head + header_line("X-Request-Id", call_id), self._encode(document)
        try:
            if paid is None:
                status, body = await self._fetcher.exchange(
                    head, body, deadline=deadline, limit=ANSWER_BYTES, beginning=ERROR_BYTES
                )
            else:
                status, body = await self._exchange_paying(paid, head, body, deadline)
        except FetchFailed as error:
            raise self._unreached(error) from error
        except DeadlinePassed:
            self._late()
            raise
        if not 200 <= status < 300:
            raise self._refusal(status, body)
        self.trouble.found = None
        if not body or body.isspace():
            raise empty_response()
        return body

    @asynccontextmanager
    async def stream(
        self, document: object, *, call_id: str, deadline: float, limit: int, paid: PaidCall | None = None
    ) -> AsyncGenerator[UpstreamAnswer]:
        """Open an answer of status 2xx that comes piece by piece, or not, valid inside the block. Raises as `ask` does."""
        head = self._streaming_head + header_line("X-Request-Id", call_id)
        body = self._encode(document)
        try:
            while True:
                async with self._fetcher.open(
                    _with_payment(head, paid), body, deadline=deadline, limit=limit
                ) as answer:
                    good = 200 <= answer.status < 300
                    if good:
                        self.trouble.found = None
                        yield answer
                    said = b"" if good else await answer.beginning(ERROR_BYTES)
                if paid is not None and await self._again(paid, answer, said):
                    continue
                if not good:
                    raise self._refusal(answer.status, said)
                return
        except FetchFailed as error:
            raise self._unreached(error) from error
        except DeadlinePassed:
            self._late()
            raise

    async def reach(self, list_at: str = "") -> None:
        """Look whether anybody is there, as `trouble` shows afterwards. Nothing is sent but, to the path `list_at`, the
        question what there is, which costs nothing and takes our credentials."""
        deadline = trio.current_time() + REACH_SECONDS
        try:
            if list_at:
                status, body = await self._fetcher.exchange(
                    self._fetcher.prepare("GET", self._sent, target=list_at),
                    b"",
                    deadline=deadline,
                    limit=ANSWER_BYTES,
                    beginning=ERROR_BYTES,
                )
                if status in REFUSES_US or status >= 500:
                    self._refusal(status, body)
                    return
            else:
                await self._fetcher.reach(deadline=deadline)
        except NotConnected as error:
            self.trouble.begins(f"it {error}", unreached=True)
        except (FetchFailed, DeadlinePassed):
            if not list_at:
                self.trouble.begins("it cannot be reached: nobody picked up in time", unreached=True)
            # Not everybody has such a list, and whoever answers it badly may answer well otherwise.
        else:
            self.trouble.reached()

    def _late(self) -> None:
        self.trouble.begins(f"it did not answer within {self._seconds:g} s")

    async def _exchange_paying(
        self, paid: PaidCall, head: bytes, body: bytes, deadline: float
    ) -> tuple[int, bytes]:
        """Exchange as `Fetcher.exchange` does, and once more with a payment where there is a price. An answer that was lost
        on the way is shown again by the next call that says the same."""
        while True:
            async with self._fetcher.open(
                _with_payment(head, paid), body, deadline=deadline, limit=ANSWER_BYTES
            ) as answer:
                good = 200 <= answer.status < 300
                said = await (answer.read() if good else answer.beginning(ERROR_BYTES))
            if not await self._again(paid, answer, said):
                return answer.status, said

    async def _again(self, paid: PaidCall, answer: UpstreamAnswer, said: bytes) -> bool:
        from server.payments.buyer.spending_policy import CannotPay

        try:
            return await paid.again_over_http(
                answer.status, lambda name: answer.header(name.lower().encode("ascii")), said
            )
        except CannotPay as problem:
            raise self._unpaid(problem) from None

    def _unpaid(self, problem: CannotPay) -> BackendError:
        """Tell the owner of the limit that was reached; whoever calls us is told only that there is a price."""
        if self._payer is not None:
            self._payer.tell(f"not paid: {problem}" + (f"; {problem.hint}" if problem.hint else ""))
        return BackendError(
            "agent endpoint 402: it wants to be paid, and was not; the log of the server says why"
        )

    def _prepare(self, accept: str, headers: tuple[tuple[str, str], ...]) -> bytes:
        ours = (("Content-Type", "application/json"), ("Accept", accept))
        return self._fetcher.prepare("POST", (*ours, *headers))

    def _refusal(self, status: int, body: bytes) -> BackendError:
        said = self.clean(self._explain(body))
        if is_trouble(status):
            self.trouble.begins(f"it answers with status {status}: {said or '(empty body)'}")
        return BackendError(f"agent endpoint {status}: {said or '(empty body)'}")

    def _unreached(self, error: FetchFailed) -> BackendError:
        self.trouble.begins(f"it {error}", unreached=isinstance(error, NotConnected))
        kind = Unreached if isinstance(error, NotConnected) else BackendError
        return kind(f"agent endpoint {error}")

    def clean(self, text: str) -> str:
        """Return at most 200 printable characters on one line, without our credentials: some endpoints repeat them."""
        for mask in self._masks:
            text = text.replace(mask, "***")
        line = " ".join("".join(c if c.isprintable() else " " for c in text[:ERROR_BYTES]).split())
        return line[:SHOWN_CHARACTERS]

    async def aclose(self) -> None:
        await self._fetcher.aclose()


def _with_payment(head: bytes, paid: PaidCall | None) -> bytes:
    return head + b"".join(header_line(name, value) for name, value in (paid.headers if paid else ()))


def empty_response() -> BackendError:
    return BackendError("agent returned empty response")


def _masks(values: Iterable[str]) -> tuple[str, ...]:
    """Return each value, and the credential at its end: "Bearer abc" is also repeated as "abc". The longest come first."""
    words = {word for value in values for word in (value, value.rpartition(" ")[2])}
    return tuple(sorted((word for word in words if len(word) >= MASKED_CHARACTERS), key=len, reverse=True))
