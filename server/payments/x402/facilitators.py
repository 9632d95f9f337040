"""The facilitators of the settings: which one verifies a payment, and which one settles it.

Verifying changes nothing, so where one does not answer the next one is asked. A payment is settled by the one that verified it and no
other: two that carry out one payment would hide from each other what became of it. Where nobody answers nothing is done (fail closed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from server.payments.x402.facilitator_client import (
    FacilitatorAccess,
    FacilitatorClient,
    NotSent,
    SupportedKind,
)
from server.payments.x402.payment_payload import Payment
from server.payments.x402.requirements import PaidResource, Requirements
from server.payments.x402.settlements import NoAnswer, Rejected, SettleOutcome, Verified

# One that did not answer is asked after the others for so long: each call would wait for it again.
AVOIDED_SECONDS: Final = 15.0
# What a facilitator supports hardly changes.
SUPPORT_SECONDS: Final = 600.0
# Until the first time it said so, and after it could not be asked.
RETRY_SECONDS: Final = (2.0, 5.0, 15.0, 60.0)

DOWN: Final = (
    "Payments cannot be checked at the moment, so nothing was done and nothing was paid. "
    "Try again later; the same payment can be used as long as it is valid."
)


class FacilitatorDown(Exception):
    """The failure to reach anybody: nothing was sent to be settled, or nothing could be verified. Its text is for whoever pays, `for_log`
    for the operator."""

    def __init__(self, for_log: str) -> None:
        super().__init__(DOWN)
        self.for_log = for_log


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """The support that one facilitator last said it gives. `url` is shown, and has no query; `kinds` is None until it was reached;
    `problem` continues a sentence about it."""

    url: str
    kinds: tuple[SupportedKind, ...] | None = None
    signers: frozenset[str] = frozenset()  # from which it sends transactions
    problem: str = ""


class Signers(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses from which facilitators send transactions. `complete`: each has just said its own."""

    addresses: frozenset[str]
    complete: bool


class Facilitators:
    """All facilitators, in the order of the settings. Close it when the last call has ended."""

    def __init__(
        self,
        facilitators: Sequence[FacilitatorAccess],
        *,
        warn: Callable[[str, str], None] = lambda url, problem: None,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        """Prepare to ask. `warn` is told the address and the trouble of one that was passed over. Raises `ValueError`."""
        self._clients = [FacilitatorClient(each) for each in facilitators]
        self._support = {each.url: Support(url=each.shown_url) for each in facilitators}
        self._avoided: dict[str, float] = {}  # until when, on trio's clock
        self._warn = warn
        self._retry_seconds = retry_seconds

    @property
    def support(self) -> tuple[Support, ...]:
        """The support that was last heard of each, without asking."""
        return tuple(self._support.values())

    async def all_signers(self, network: str, sender: str) -> Signers:
        """Return from where those that serve this network send transactions, asking all now unless `sender` is known among them."""
        known = self._signers(network)
        if sender in known.addresses:
            return known
        await self.supported()
        return self._signers(network)

    def _signers(self, network: str) -> Signers:
        serving = [
            self._support[client.access.url] for client in self._clients if self._able(client, network)
        ]
        return Signers(
            addresses=frozenset[str]().union(*(each.signers for each in serving)),
            complete=all(each.signers and not each.problem for each in serving),
        )

    async def supported(self) -> tuple[Support, ...]:
        """Ask all of them now, at the same time. Never fails: trouble is part of the answer."""
        async with trio.open_nursery() as nursery:
            for client in self._clients:
                nursery.start_soon(self._ask_support, client)
        return self.support

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep knowing what they support. Nothing depends on that: who was never reached is asked all the same."""
        task_status.started()
        failures = 0
        while True:
            found = await self.supported()
            failures = failures + 1 if any(each.problem for each in found) else 0
            pause = SUPPORT_SECONDS
            if failures:
                pause = self._retry_seconds[min(failures, len(self._retry_seconds)) - 1]
            await trio.sleep(pause)

    async def verify(
        self, payment: Payment, requirements: Requirements, resource: PaidResource | None = None
    ) -> Verified | Rejected:
        """Verify a payment. Raises `FacilitatorDown`."""
        problems: list[str] = []
        for client in self._candidates(payment, requirements):
            try:
                answer = await client.verify(payment, requirements, resource)
            except NoAnswer as problem:
                problems.append(self._passed_over(client, problem))
            else:
                self._avoided.pop(client.access.url, None)
                return answer
        raise FacilitatorDown("; ".join(problems) or self._nobody(payment, requirements))

    async def settle(
        self,
        payment: Payment,
        requirements: Requirements,
        resource: PaidResource | None = None,
        *,
        at: str,
        repeated: bool = False,
    ) -> SettleOutcome:
        """Settle a payment by the one at the address `at`. Raises `FacilitatorDown`: this time, nothing was sent.

        `repeated`: it was sent before. A facilitator that the settings no longer name is replaced by the first that takes such payments,
        which can do no harm: an authorization is carried out once, whoever does it."""
        client = next((each for each in self._clients if each.access.url == at), None)
        if client is None:
            client = next(iter(self._candidates(payment, requirements)), None)
        if client is None:
            raise FacilitatorDown(self._nobody(payment, requirements))
        try:
            return await client.settle(payment, requirements, resource, repeated=repeated)
        except NotSent as problem:
            raise FacilitatorDown(self._passed_over(client, problem)) from problem

    def _passed_over(self, client: FacilitatorClient, problem: Exception) -> str:
        self._avoided[client.access.url] = trio.current_time() + AVOIDED_SECONDS
        self._warn(client.access.shown_url, str(problem))
        return f"{client.access.shown_url} {problem}"

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()

    def _candidates(self, payment: Payment, requirements: Requirements) -> list[FacilitatorClient]:
        now = trio.current_time()
        wanted = (requirements.network, payment.version, requirements.scheme)
        able = [each for each in self._clients if self._able(each, *wanted)]
        return sorted(able, key=lambda each: self._avoided.get(each.access.url, now) > now)

    def _able(
        self, client: FacilitatorClient, network: str, version: int | None = None, scheme: str | None = None
    ) -> bool:
        """Return whether it serves a network. The settings count, or else its own word, and nobody is left out for not having said
        anything yet."""
        if networks := client.access.networks:
            return network in networks
        kinds = self._support[client.access.url].kinds
        return kinds is None or any(
            kind.covers(version or kind.version, scheme or kind.scheme, network) for kind in kinds
        )

    async def _ask_support(self, client: FacilitatorClient) -> None:
        url = client.access.url
        known = self._support[url]
        try:
            found = await client.supported()
        except NoAnswer as problem:
            if str(problem) != known.problem:
                self._warn(known.url, str(problem))
            self._support[url] = msgspec.structs.replace(known, problem=str(problem))
        else:
            self._support[url] = Support(url=known.url, kinds=found.kinds, signers=found.signers)

    def _nobody(self, payment: Payment, requirements: Requirements) -> str:
        return (
            f'no facilitator takes payments in scheme "{requirements.scheme}" of version {payment.version} '
            f"on {requirements.network}"
        )
