"""A till to try out: a store in memory, a clock that stands until it is moved, and facilitators that say what a test wants."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any, Final

import structlog
import trio
import trio.testing

from auth.keys import signing_keys
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.payments.seller import wallets
from server.payments.seller.claims import Rules
from server.payments.seller.deposits import Deposits
from server.payments.seller.ledger import GRANTED, Books, Movement
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.payment_requirements import PaymentOffers
from server.payments.seller.payment_taking import SellerParts
from server.payments.seller.plans import Plans
from server.payments.seller.priced_call import PricedCall, Refusal, Served, Shown, Started
from server.payments.seller.quotes import Quotes
from server.payments.seller.receipts import Receipts
from server.payments.seller.settlement import Settlements
from server.payments.seller.spending_caps import CapRules
from server.payments.seller.till import Till
from server.payments.x402.facilitators import FacilitatorDown, Signers
from server.payments.x402.payment_payload import Payment, read_payment
from server.payments.x402.settlements import Rejected, Settled, SettleOutcome, Verified
from server.settings.sale_settings import accepted_assets
from server.store.idempotency.call_keys import fingerprint
from server.store.idempotency.kept_answers import AnswerRoom, KeptSum
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import Row, StoreBroken, StoreDb, StoreUnavailable
from tests.payments.seller.till_fakes import NOW, PAYMENTS
from tests.payments.x402.builders import PAYER, SIGNATURE, TRANSACTION

BOOT: Final = "boot-1"
ANN: Final = "user:ann:"
WALLET: Final = "user:ann"
KEY: Final = b"k" * 32
ANSWER: Final = ToolResult(content=[TextContent(text="42")])
REFUSED: Final = Rejected(code="no_funds", sentence="There is not enough.", said="funds", certain=True)
NOT_CERTAIN: Final = Rejected(code="odd", sentence="No.", said="odd", certain=False)


class FakeFacilitators:
    """What is put in `verdicts` and `outcomes` is said next, else yes. `hold`: a settlement waits for it."""

    def __init__(self) -> None:
        self.verdicts: list[Rejected | FacilitatorDown] = []
        self.outcomes: list[SettleOutcome | FacilitatorDown] = []
        self.verified = 0
        self.settled: list[str] = []
        self.repeats: list[bool] = []
        self.signers: frozenset[str] = frozenset()
        self.silent = False  # one of them has not said from where it sends
        self.hold: trio.Event | None = None
        self.verify_hold: trio.Event | None = None

    async def verify(self, payment: Payment, requirements: Any, resource: Any = None) -> Verified | Rejected:
        self.verified += 1
        if self.verify_hold is not None:
            await self.verify_hold.wait()
        if self.verdicts:
            said = self.verdicts.pop(0)
            if isinstance(said, FacilitatorDown):
                raise said
            return said
        return Verified(payer=payment.authorization.from_, facilitator="https://f.example")

    async def all_signers(self, network: str, sender: str) -> Signers:
        await trio.lowlevel.checkpoint()
        return Signers(addresses=self.signers, complete=bool(self.signers) and not self.silent)

    async def settle(
        self, payment: Payment, requirements: Any, resource: Any = None, *, at: str, repeated: bool = False
    ) -> SettleOutcome:
        self.settled.append(payment.authorization.nonce)
        self.repeats.append(repeated)
        if self.hold is not None:
            await self.hold.wait()
        if self.outcomes:
            said = self.outcomes.pop(0)
            if isinstance(said, FacilitatorDown):
                raise said
            return said
        a = payment.authorization
        return Settled(
            transaction=TRANSACTION, payer=a.from_, network=requirements.network, amount=requirements.amount
        )


class FaultyStore:
    """The store, except that jobs fail when they are told to. `failing` is asked with the name of each that writes, `losing` when it is done,
    whether nobody is told so; `before`, `after` and then `meanwhile` are called with the number of each."""

    def __init__(self, store: InlineStore) -> None:
        self.inner: Final = store
        self.failing: Callable[[str], Exception | None] = lambda name: None
        self.losing: Callable[[str], bool] = lambda name: False
        self.unreadable = False
        self.before: Callable[[int], None] = lambda number: None
        self.after: Callable[[int], None] = lambda number: None
        self.meanwhile: Callable[[int], Awaitable[object]] | None = None
        self.jobs = 0

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        error = self.failing(_name(job))
        if error is not None:
            raise error
        done = await self._counted(self.inner.write, job)
        if self.losing(_name(job)):
            raise StoreBroken("lost during a commit")
        return done

    async def read(self, job: Callable[[StoreDb], Any]) -> Any:
        if self.unreadable:
            raise StoreUnavailable("the database does not answer")
        return await self._counted(self.inner.read, job)

    async def _counted(
        self, do: Callable[[Callable[[StoreDb], Any]], Any], job: Callable[[StoreDb], Any]
    ) -> Any:
        self.jobs += 1
        number = self.jobs
        self.before(number)
        done = await do(job)
        self.after(number)
        if self.meanwhile is not None:
            await self.meanwhile(number)
        return done


def _name(job: Any) -> str:
    return str(getattr(getattr(job, "func", job), "__name__", ""))


class OpenTill:
    """Everything that a test of the till touches."""

    def __init__(self, store: InlineStore, **bounds: KeptSum) -> None:
        """`bounds`: of the answers that are kept."""
        self.now = NOW
        self.store = FaultyStore(store)
        self._bounds = bounds
        self.facilitators = FakeFacilitators()
        self.chains: dict[str, Any] = {}  # by network
        self.books = Books(KEY)
        self.heard = StringIO()
        self.log: Any = structlog.wrap_logger(structlog.PrintLogger(self.heard))
        self._ids = itertools.count()
        self.vault = AnswerVault(KEY, self._entropy)
        sealed = signing_keys.generate(b"s" * 32, nonce=b"n" * 12, now=NOW)
        row = {name: getattr(sealed, name) for name in sealed.__slots__}
        self._signing = signing_keys.unseal(row, b"s" * 32)
        self.settlements = self.made_settlements(BOOT)
        self.till = self.made_till(self.settlements, BOOT)
        self._nonces = itertools.count(1)

    def _entropy(self, size: int) -> bytes:
        return next(self._ids).to_bytes(size, "big")

    def made_settlements(self, boot_id: str) -> Settlements:
        facilitators: Any = self.facilitators
        store: Any = self.store
        bounds: dict[str, Any] = {**self._bounds}
        return Settlements(
            store=store, books=self.books, answers=self.vault, facilitators=facilitators, chains=self.chains,
            clock=lambda: self.now, boot_id=boot_id, log=self.log, room=AnswerRoom(store, lambda: self.now, **bounds),
            look_seconds=math.inf,  # after the first, it looks when a test says so (`look`)
        )  # fmt: skip

    def showcase(self, below: str) -> PaymentOffers:
        return PaymentOffers(
            server="main", base=f"https://shop.example/main/{below}", title="Main", assets=accepted_assets(PAYMENTS),
            max_timeout_seconds=120,
        )  # fmt: skip

    def _parts(
        self, settlements: Settlements, boot_id: str, below: str, *, balances: bool = True
    ) -> SellerParts:
        store: Any = self.store
        return SellerParts(
            server="main", store=store, books=self.books, quotes=Quotes(KEY, clock=lambda: self.now),
            answers=self.vault, settlements=settlements,
            receipts=Receipts(issuer="https://shop.example", key=lambda: self._signing, currency=CURRENCY),
            showcase=self.showcase(below), rules=Rules(plans=Plans(), caps=CapRules(), balances=balances), key=KEY,
            clock=lambda: self.now, entropy=self._entropy, boot_id=boot_id, log=self.log,
        )  # fmt: skip

    def made_till(self, settlements: Settlements, boot_id: str, *, balances: bool = True) -> Till:
        return Till(self._parts(settlements, boot_id, "call/", balances=balances))

    def deposits(self, settlements: Settlements | None = None) -> Deposits:
        parts = self._parts(settlements or self.settlements, BOOT, "")
        return Deposits(parts, least=10_000, most=1_000_000_000)

    # ── what a test brings ───────────────────────────────────────────────────────────────────────────────────────────

    def payment(
        self, offer: Offer | None = None, *, below: str = "call/", version: int = 2, **changes: Any
    ) -> Payment:
        wanted = self.showcase(below).requirements(offer or an_offer())[0]
        fields = {
            "from": PAYER, "to": wanted.pay_to, "value": wanted.amount, "validAfter": "0",
            "validBefore": str(self.now // 1000 + 300), "nonce": f"0x{next(self._nonces):064x}",
        }  # fmt: skip
        payload = {"signature": SIGNATURE, "authorization": {**fields, **changes}}
        if version == 1:
            return read_payment(
                {"x402Version": 1, "scheme": "exact", "network": "base-sepolia", "payload": payload}
            )
        return read_payment({"x402Version": 2, "accepted": wanted.as_json(), "payload": payload})

    async def give(self, amount: int, wallet: str = WALLET) -> None:
        def job(db: StoreDb) -> None:
            wallets.open_wallet(db, wallet, CURRENCY, self.now)
            self.books.post(
                db,
                Movement(
                    kind="grant", source=GRANTED, target=wallets.account_of(wallet), amount=amount,
                    currency=CURRENCY, principal="local:0",
                ),
                self.now,
            )  # fmt: skip

        await self.store.inner.write(job)

    async def pays(self, call: PricedCall, offer: Offer, **shown: Any) -> Any:
        """A call from its beginning to its end, whose tool answers."""
        begun = await self.till.begin(call, offer, Shown(**shown))
        return await self.till.finish(begun, ANSWER) if isinstance(begun, Started) else begun

    def written(self, served: Served | Any, *, keyed: bool = False, keeps_ms: int = 0) -> None:
        self.till.answered(served.charge_id, keyed=keyed, keeps_ms=keeps_ms)

    async def look(self) -> None:
        """What is looked after each second."""
        await self.settlements._look()  # pyright: ignore[reportPrivateUsage]
        await trio.testing.wait_all_tasks_blocked()

    # ── what it finds ────────────────────────────────────────────────────────────────────────────────────────────────

    async def rows(self, table: str) -> list[Row]:
        return await self.store.inner.read(lambda db: db.fetch_all(f"SELECT * FROM {table}"))

    async def wallet(self, wallet: str = WALLET) -> Mapping[str, Any]:
        rows = await self.rows("wallets")
        return next(row for row in rows if row["id"] == wallet)


@asynccontextmanager
async def open_till(**bounds: KeptSum) -> AsyncGenerator[OpenTill]:
    async with open_inline_store(clock=lambda: NOW) as store, till_on(store, **bounds) as made:
        yield made


@asynccontextmanager
async def till_on(store: InlineStore, **bounds: KeptSum) -> AsyncGenerator[OpenTill]:
    store.chain_audit(b"a" * 32)
    made = OpenTill(store, **bounds)
    made.books.keep(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.settlements.run)
        yield made
        nursery.cancel_scope.cancel()


def an_offer(amount: int = 10_000, **more: Any) -> Offer:
    fields: dict[str, Any] = {"server": "main", "tool": "search", "amount": amount, "version": "v1", **more}
    return Offer(**fields)


def a_call(arguments: Mapping[str, Any] | None = None, **more: Any) -> PricedCall:
    told = arguments if arguments is not None else {"q": "x"}
    fields: dict[str, Any] = {
        "server": "main", "tool": "search", "arguments": told, "fingerprint": fingerprint(KEY, "main", "search", told),
        "caller": ANN, "call_id": "call_1", "deadline_seconds": 30.0, "wallet": WALLET,
    }  # fmt: skip
    return PricedCall(**{**fields, **more})


def anonymous(arguments: Mapping[str, Any] | None = None, **more: Any) -> PricedCall:
    return a_call(arguments, caller="", wallet=None, **more)


def no_room(*names: str) -> Callable[[str], Exception | None]:
    """Jobs of these names find no room."""
    return lambda name: StoreUnavailable("no room") if name in names else None


def reason(outcome: Any) -> str:
    assert isinstance(outcome, Refusal), outcome
    return outcome.reason
