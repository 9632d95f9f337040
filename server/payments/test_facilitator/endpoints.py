"""Answers of the test facilitator to somebody who verifies and settles payments, well or as its switches have it (x402 v2 §7, v1 §7).

Values in, values out: how an answer goes out, is late or never comes is server/run/test_facilitator.py's; the other paths are in
routes.py."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from server.lib.evm.payment_networks import Asset, Network
from server.lib.log.logger import Logger
from server.lib.money.amounts import BadAmount, from_atomic, shown
from server.payments.test_facilitator import switches as modes
from server.payments.test_facilitator.cheques import BadCheque, Cheque, read_cheque
from server.payments.test_facilitator.coins import Coins, CoinsFull, SeenAuthorization
from server.payments.test_facilitator.judging import fault, network_of, signed_by_payer
from server.payments.test_facilitator.state_file import StateFile
from server.payments.test_facilitator.switches import Switch, Switches

SETTLEMENT_PENDING: Final = "settlement_pending"
UNEXPECTED_VERIFY: Final = "unexpected_verify_error"
UNEXPECTED_SETTLE: Final = "unexpected_settle_error"
FULL: Final = "the test facilitator's books are full"

JSON: Final = b"application/json"
HTML: Final = b"text/html; charset=utf-8"


class EndpointReply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `told` False: the connection ends without one, at once or, if it `waits`, when the other side gives up. `afterwards` is
    done so many seconds after the answer."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = JSON
    allow: tuple[str, ...] = ()  # the methods, where it was another
    told: bool = True
    waits: bool = False
    after_seconds: float = 0.0
    afterwards: Callable[[], Awaitable[object]] | None = None
    afterwards_seconds: float = 0.0


Answer: TypeAlias = dict[str, Any]

CUT: Final = EndpointReply(told=False)
NEVER: Final = EndpointReply(told=False, waits=True)
GARBAGE: Final = EndpointReply(
    body=b"<html><body>No facilitator should say this.</body></html>\n", content_type=HTML
)


def in_json(value: object, status: int = 200) -> EndpointReply:
    return EndpointReply(status=status, body=json.dumps(value, indent=1).encode() + b"\n")


FAILED_500: Final = in_json({"error": "the test facilitator was told to fail like this"}, 500)
FAILED_504: Final = in_json(
    {"error": "the test facilitator was told to answer nothing better than this"}, 504
)


class FacilitatorEndpoints:
    def __init__(
        self,
        coins: Coins,
        switches: Switches,
        *,
        clock: Callable[[], int],
        log: Logger,
        file: StateFile | None = None,
    ) -> None:
        """Answer with these coins. `clock`: whole seconds since 1970. `file`: where the coins are to be found after a restart."""
        self.coins: Final = coins
        self.switches: Final = switches
        self.clock: Final = clock
        self._log = log
        self._file = file

    async def verify(self, body: bytes) -> EndpointReply:
        begun = self._begin("verify", body, UNEXPECTED_VERIFY, _invalid)
        if isinstance(begun, EndpointReply):
            return begun
        switch, cheque, seen = begun
        if seen is not None:
            seen.verify_calls += 1
            self.coins.changes += 1
        reason = switch.reason if switch.mode == modes.FAIL else self._why_not(cheque, seen)
        self._say("payment.verified", cheque, switch, reason or "valid")
        answer: Answer = {"isValid": True, "payer": cheque.payer}
        return _as_told(in_json(_invalid(reason, cheque) if reason else answer), switch)

    async def settle(self, body: bytes) -> EndpointReply:
        begun = self._begin("settle", body, UNEXPECTED_SETTLE, _unsettled)
        if isinstance(begun, EndpointReply):
            return begun
        switch, cheque, seen = begun
        if seen is not None:
            seen.settle_calls += 1
            self.coins.changes += 1
        if switch.mode in (modes.HANG, modes.ERROR_500, modes.GARBAGE, modes.FAIL, modes.LATE):
            self._say("payment.not_settled", cheque, switch, switch.reason or "not tried")
            if switch.mode == modes.LATE:
                return msgspec.structs.replace(
                    FAILED_504,
                    afterwards=partial(self._settle, cheque, switch),
                    afterwards_seconds=switch.seconds,
                )
            return _as_told(in_json(_unsettled(switch.reason, cheque)), switch)
        answer = await self._settle(cheque, switch)
        return answer if answer.status >= 500 else _as_told(answer, switch)

    def _begin(
        self, step: str, body: bytes, unexpected: str, refuse: Callable[[str, Cheque | None, str], Answer]
    ) -> tuple[Switch, Cheque, SeenAuthorization | None] | EndpointReply:
        """Read what came, or answer at once what cannot be read."""
        switch = self.switches.take(step)
        try:
            cheque = read_cheque(body)
            return switch, cheque, self._see(cheque)
        except BadCheque as bad:
            self._log.info("payment.unreadable", step=step, reason=bad.reason)
            return _as_told(in_json(refuse(bad.reason, None, str(bad)), 400), switch)
        except CoinsFull:
            return in_json(refuse(unexpected, None, FULL), 503)

    async def save(self) -> None:
        """Write down what is not written down yet. Raises `OSError`."""
        if self._file is not None:
            await self._file.save(self.coins)

    async def _settle(self, cheque: Cheque, switch: Switch) -> EndpointReply:
        try:
            answer = self._settled(cheque, pending=switch.mode == modes.PENDING)
        except CoinsFull:
            return in_json(_unsettled(UNEXPECTED_SETTLE, cheque, FULL), 503)
        outcome = "settled" if answer["success"] else answer["errorReason"]
        self._say("payment.settled", cheque, switch, outcome, transaction=answer["transaction"])
        try:
            await self.save()
        except OSError as error:
            self._log.error("facilitator.not_saved", reason=error.strerror)
            return in_json({"error": "the test facilitator could not write its books down"}, 500)
        return in_json(answer)

    def _settled(self, cheque: Cheque, *, pending: bool) -> Answer:
        """Settle in one step, so that of several with one nonce one moves the coins. Raises `CoinsFull`."""
        found, seen = self._found(cheque), self._see(cheque)
        if found is not None and seen is not None and seen.pending and _is_same(cheque, seen, *found):
            # What was sent before has got into a block by now.
            seen.pending = pending
            self.coins.changes += 1
            return _outcome(cheque, seen)
        if reason := fault(self.coins, cheque, self.clock()):
            return _unsettled(reason, cheque)
        if found is None or seen is None:
            raise RuntimeError("what has no fault is on a network, and has a token")
        if reason := self.coins.move(found[1], cheque, seen, self.clock(), pending=pending):
            return _unsettled(reason, cheque)
        return _outcome(cheque, seen)

    def _found(self, cheque: Cheque) -> tuple[Network, Asset] | None:
        """Find where it is to be paid, and with which token."""
        known = network_of(self.coins, cheque)
        token = known and self.coins.token(known[0].caip2, cheque.asset)
        return (known[0], token) if known and token else None

    def _see(self, cheque: Cheque) -> SeenAuthorization | None:
        """See the authorization. Raises `CoinsFull`."""
        found = self._found(cheque)
        return found and self.coins.see(found[1], cheque, self.clock())

    def _why_not(self, cheque: Cheque, seen: SeenAuthorization | None) -> str:
        if reason := fault(self.coins, cheque, self.clock()):
            return reason
        found = self._found(cheque)
        return self.coins.why_not(found[1], cheque, seen) if found and seen else ""

    def _say(self, event: str, cheque: Cheque, switch: Switch, outcome: str, **more: object) -> None:
        found = self._found(cheque)
        told = {} if switch.mode == modes.OK else {"switch": switch.written}
        self._log.info(
            event,
            network=cheque.asked_network[:80],
            payer=cheque.payer,
            pay_to=cheque.to,
            amount=_shown(cheque.value, found[1]) if found else str(cheque.value),
            outcome=outcome,
            **{name: value for name, value in more.items() if value},
            **told,
        )


def _is_same(cheque: Cheque, seen: SeenAuthorization, network: Network, token: Asset) -> bool:
    """Return whether it is the very one that was settled: signed by its payer, and for the same."""
    return (cheque.to.lower(), str(cheque.value)) == (seen.to, seen.value) and signed_by_payer(
        cheque, network, token
    )


def _as_told(reply: EndpointReply, switch: Switch) -> EndpointReply:
    """Return what the switch makes of an answer."""
    match switch.mode:
        case modes.HANG:
            return NEVER
        case modes.LOST:
            return CUT
        case modes.ERROR_500:
            return FAILED_500
        case modes.GATEWAY_504:
            return FAILED_504
        case modes.GARBAGE:
            return GARBAGE
        case modes.SLOW:
            return msgspec.structs.replace(reply, after_seconds=switch.seconds)
        case _:
            return reply


def _invalid(reason: str, cheque: Cheque | None, message: str = "") -> Answer:
    return {
        "isValid": False,
        "invalidReason": reason,
        **({"invalidMessage": message} if message else {}),
        **({"payer": cheque.payer} if cheque else {}),
    }


def _unsettled(reason: str, cheque: Cheque | None, message: str = "", transaction: str = "") -> Answer:
    return {
        "success": False,
        "errorReason": reason,
        **({"errorMessage": message} if message else {}),
        **({"payer": cheque.payer} if cheque else {}),
        "transaction": transaction,
        "network": cheque.asked_network if cheque else "",
    }


def _outcome(cheque: Cheque, seen: SeenAuthorization) -> Answer:
    """Tell that the coins have moved; whether that is certain is not told yet while it is pending."""
    if seen.pending:
        return _unsettled(SETTLEMENT_PENDING, cheque, transaction=seen.transaction)
    answer: Answer = {
        "success": True,
        "payer": cheque.payer,
        "transaction": seen.transaction,
        "network": cheque.asked_network,
    }
    return answer if cheque.x402_version == 1 else {**answer, "amount": str(cheque.value)}


def _shown(value: int, token: Asset) -> str:
    try:
        return shown(from_atomic(value, token.decimals))
    except BadAmount:
        return f"{value} atomic units"
