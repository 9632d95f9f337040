"""The till of each server that sells something, and what they share: the books, the facilitators, the payments under way.

Loaded only where the settings name a price or payments.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from auth.keys.signing_keys import SigningKey
from server.agents.base.catalog import Catalog
from server.calls.servers.agent_factory import Subkey
from server.calls.servers.server_opening import CannotStart, now_millis
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.lib.money.amounts import parse
from server.payments.seller import quotes, till
from server.payments.seller.claims import Rules
from server.payments.seller.deposits import KEY_PURPOSE as DEPOSIT_PURPOSE
from server.payments.seller.deposits import Deposits
from server.payments.seller.ledger import Books
from server.payments.seller.offers import CURRENCY
from server.payments.seller.payment_counts import TillCounts
from server.payments.seller.payment_requirements import PaymentOffers
from server.payments.seller.payment_taking import SellerParts
from server.payments.seller.plans import Plans
from server.payments.seller.quotes import Quotes
from server.payments.seller.receipts import Receipts
from server.payments.seller.revenue import Revenue
from server.payments.seller.settlement import Settlements
from server.payments.seller.signed_terms import SignedTerms
from server.payments.seller.spending_caps import CapRules
from server.payments.seller.till import Till
from server.payments.x402.chain_client import Chain
from server.payments.x402.facilitator_client import FacilitatorAccess
from server.payments.x402.facilitators import Facilitators
from server.run.account_money import AccountMoney
from server.settings.money_settings import FacilitatorConfig, PaymentsConfig
from server.settings.resolved_settings import Resolved
from server.settings.sale_settings import AcceptedAsset, accepted_assets, network_named
from server.settings.secret_reference import read_secret
from server.settings.setting_shapes import ServerConfig
from server.store.idempotency import sealed_answers
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.jobs import Store
from server.store.ledger_chain import KEY_PURPOSE as LEDGER_PURPOSE

if TYPE_CHECKING:
    from server.payments.x402.request_tokens import RequestTokens

HINT: Final = "see [payments] in the settings"
CALLS_ENDPOINT: Final = "ostiary_calls_endpoint"
DEPOSIT_ENDPOINT: Final = "ostiary_deposit_endpoint"
_PREFIXES: Final = ("env:", "file:")
_NO_PAYMENTS: Final = PaymentsConfig()


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """All that sells. Who opened it runs `run` and closes it."""

    settlements: Settlements
    facilitators: Facilitators
    chains: Mapping[str, Chain]
    assets: tuple[AcceptedAsset, ...]
    make: Callable[[ServerConfig], Till]
    # None: nobody has a balance that they could fill themselves.
    deposits: Callable[[ServerConfig], Deposits] | None

    def count(self, metrics: Metrics) -> None:
        counts = self.settlements.counts
        metrics.counters(
            "payments", "Payments by what became of them; unknown: each look that found nothing out", "outcome",
            lambda: counts.payments,
        )  # fmt: skip
        metrics.counters(
            "charges", "Priced calls that were answered, by what paid for them", "way", lambda: counts.charges
        )
        metrics.counter(
            "facilitator_trouble",
            "Times that a facilitator was passed over",
            lambda: counts.facilitator_trouble,
        )
        metrics.gauge(
            "payments_unsettled", "Payments that were sent and have no outcome", lambda: counts.waiting.count
        )
        metrics.gauge(
            "payments_unknown", "Those of them of which nobody could say it", lambda: counts.waiting.unknown
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.settlements.run)
            nursery.start_soon(self.facilitators.run)
            task_status.started()

    async def aclose(self) -> None:
        await self.facilitators.aclose()
        for chain in self.chains.values():
            await chain.aclose()


def open_cashier(
    resolved: Resolved, store: Store, subkey: Subkey, catalogs: Mapping[str, Catalog]
) -> AccountMoney:
    """Open what people are shown of their money. `catalogs`: by server; it may be filled in later."""
    payments = resolved.payments or _NO_PAYMENTS
    return AccountMoney(
        rules=_rules(resolved, payments),
        books=Books(subkey(LEDGER_PURPOSE)),
        store=store,
        catalogs=catalogs,
        takings=Revenue(store),
    )


def _rules(resolved: Resolved, payments: PaymentsConfig) -> Rules:
    return Rules(plans=Plans(resolved.plans), caps=CapRules.of(payments.caps), balances=payments.wallets)


def open_money(
    resolved: Resolved,
    store: Store,
    subkey: Subkey,
    log: Logger,
    *,
    boot_id: str,
    issuer: str,
    signing_key: Callable[[], SigningKey],
) -> Money:
    """Open all that sells. Raises `CannotStart` and `SecretUnreadable`."""
    payments = resolved.payments or _NO_PAYMENTS
    counts = TillCounts()

    def warn(url: str, problem: str) -> None:
        counts.trouble()
        log.warning("payment.facilitator_trouble", url=url, reason=problem)

    try:
        facilitators = Facilitators([_access(each) for each in payments.facilitator], warn=warn)
        chains = _chains(payments)
    except ValueError as error:
        raise CannotStart(f"payments: {error}", HINT) from error
    kept = AnswerVault(subkey(sealed_answers.KEY_PURPOSE), secrets.token_bytes)
    books = Books(subkey(LEDGER_PURPOSE))
    settlements = Settlements(
        store=store,
        books=books,
        answers=kept,
        facilitators=facilitators,
        chains=chains,
        clock=now_millis,
        boot_id=boot_id,
        log=log,
        counts=counts,
    )
    receipts = Receipts(issuer=issuer, key=signing_key, currency=CURRENCY)
    terms = SignedTerms(issuer=issuer, key=signing_key, clock=now_millis)
    assets = accepted_assets(payments)

    def parts(settings: ServerConfig, below: str, purpose: str) -> SellerParts:
        return SellerParts(
            server=settings.name,
            store=store,
            books=books,
            quotes=Quotes(subkey(quotes.KEY_PURPOSE), clock=now_millis),
            answers=kept,
            settlements=settlements,
            receipts=receipts,
            showcase=PaymentOffers(
                server=settings.name,
                base=f"{issuer}/{settings.name}/{below}",
                title=settings.title or settings.name,
                assets=assets,
                max_timeout_seconds=payments.max_timeout_seconds,
                signs=terms if payments.signed_offers else None,
            ),
            rules=_rules(resolved, payments),
            key=subkey(purpose),
            clock=now_millis,
            entropy=secrets.token_bytes,
            boot_id=boot_id,
            log=log,
            terms=terms,
        )

    def deposits(settings: ServerConfig) -> Deposits:
        least, most = parse(payments.deposit_least), parse(payments.deposit_most)
        return Deposits(parts(settings, "", DEPOSIT_PURPOSE), least=least, most=most)

    def make(settings: ServerConfig) -> Till:
        return Till(parts(settings, "call/", till.KEY_PURPOSE))

    return Money(
        settlements=settlements,
        facilitators=facilitators,
        chains=chains,
        assets=assets,
        make=make,
        deposits=deposits if assets and payments.wallets else None,
    )


def announced(resolved: Resolved, server: ServerConfig) -> Mapping[str, str]:
    """Return paths, under the names by which our own clients look for them in the metadata of a protected resource."""
    payments = resolved.payments or _NO_PAYMENTS
    found = {CALLS_ENDPOINT: f"/{server.name}/call/"}
    if payments.wallets and accepted_assets(payments):
        found[DEPOSIT_ENDPOINT] = f"/{server.name}/deposit"
    return found


def _access(config: FacilitatorConfig) -> FacilitatorAccess:
    return FacilitatorAccess(
        url=config.url,
        networks=tuple(
            network.caip2 for name in config.networks if (network := network_named(name)) is not None
        ),
        headers=tuple((name, _revealed(value)) for name, value in config.headers.items()),
        verify_seconds=config.timeout_seconds,
        settle_seconds=config.settle_timeout_seconds,
        tokens=_tokens(config),
    )


def _tokens(config: FacilitatorConfig) -> RequestTokens | None:
    if not config.key_secret:
        return None
    from server.payments.x402.request_tokens import RequestTokens

    key_id, secret = read_secret(config.key_id).reveal(), read_secret(config.key_secret).reveal()
    try:
        return RequestTokens(key_id, secret, clock=now_millis, entropy=secrets.token_bytes)
    except ValueError as problem:
        raise ValueError(f"the key {config.key_secret} of {config.url.partition('?')[0]} {problem}") from None


def _revealed(written: str) -> str:
    """Look up the reference in `"Bearer env:KEY"`; what stands before it stays."""
    scheme, blank, reference = written.rpartition(" ")
    if reference.startswith(_PREFIXES):
        return f"{scheme}{blank}{read_secret(reference).reveal()}"
    return read_secret(written).reveal()


def _chains(payments: PaymentsConfig) -> Mapping[str, Chain]:
    found: dict[str, Chain] = {}
    for name, url in payments.rpc.items():
        network = network_named(name)
        if network is not None:
            written = read_secret(url).reveal() if url.startswith(_PREFIXES) else url
            found[network.caip2] = Chain(written, network)
    return found
