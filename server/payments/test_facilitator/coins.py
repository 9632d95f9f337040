"""The coins: who has how many, and which authorizations were seen, counted and used. A chain's knowledge, kept in memory.

Every address begins with the same amount. Nothing is signed or judged here (judging.py); what it looks like to somebody who asks a chain
is in fake_chain_node.py, how it survives a restart in state_file.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Final, TypeAlias

import msgspec

from server.lib.evm.payment_networks import Asset, Network
from server.lib.money.amounts import Micros, to_atomic
from server.payments.test_facilitator.cheques import Cheque

# Half a kilobyte each. Beyond this the oldest go of those that can never count again, or never did.
MOST_AUTHORIZATIONS: Final = 50_000
MOST_ADDRESSES: Final = 100_000
# No chain begins at 0 when somebody asks for its last few thousand blocks.
FIRST_BLOCK: Final = 10_000_000

# As the reference facilitator spells them.
NONCE_USED: Final = "invalid_exact_evm_nonce_already_used"
NOT_ENOUGH: Final = "invalid_exact_evm_insufficient_balance"

# Network, token and address (or payer and nonce), in lower case, with spaces between.
Key: TypeAlias = str
_Atomic: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,80}\Z")]
_BalanceKey: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^ ]+ [^ ]+ [^ ]+\Z")]


class CoinsFull(Exception):
    """A lack of room until something expires."""


class SeenAuthorization(msgspec.Struct, kw_only=True):
    """One nonce of one payer. `to` and `value` are those it was used for, else those it was last seen with."""

    network: str  # CAIP-2
    asset: str
    payer: str
    nonce: str
    to: str
    value: _Atomic
    valid_before: int
    verify_calls: int = 0
    settle_calls: int = 0
    transaction: str = ""  # empty: its coins did not move
    block: int = 0
    settled_at: int = 0  # seconds since 1970
    pending: bool = False  # its settlement was answered with "not yet", and is to be confirmed

    @property
    def settled(self) -> bool:
        return self.transaction != ""


class CoinState(msgspec.Struct, kw_only=True):
    """The coins as they are written down."""

    format: int = 1
    block: int = FIRST_BLOCK
    balances: dict[_BalanceKey, _Atomic] = {}  # of those that do not have what everybody begins with
    authorizations: list[SeenAuthorization] = []


class Coins:
    def __init__(
        self, networks: Sequence[tuple[Network, Asset]], each: Micros, state: CoinState | None = None
    ) -> None:
        """Hand out coins. `each`: what an address begins with, of each token. Raises `ValueError` for a network with real money."""
        for network, _ in networks:
            if not network.testnet:
                raise ValueError(f"{network.title} is a real network, and these coins are not real")
        self.networks: Final = tuple(networks)
        self.changes = 0  # of what is to be written down
        self._tokens: Final[Mapping[Key, Asset]] = {_at(asset): asset for _, asset in networks}
        self._given: Final = {key: to_atomic(each, asset.decimals) for key, asset in self._tokens.items()}
        kept = state or CoinState()
        self.block = kept.block
        self._balances: dict[Key, int] = {key: int(value) for key, value in kept.balances.items()}
        self._seen = {
            _key(each.network, each.asset, each.payer, each.nonce): each for each in kept.authorizations
        }
        self._by_transaction = {each.transaction: each for each in self._seen.values() if each.settled}

    def token(self, network: str, asset: str) -> Asset | None:
        return self._tokens.get(_key(network, asset))

    def balance(self, asset: Asset, address: str) -> int:
        return self._balances.get(_at(asset, address), self._given[_at(asset)])

    def put(self, asset: Asset, address: str, atomic: int) -> None:
        """Set what an address has. Raises `CoinsFull`."""
        key = _at(asset, address)
        if key not in self._balances and len(self._balances) >= MOST_ADDRESSES:
            raise CoinsFull
        self._balances[key] = atomic
        self.changes += 1

    def see(self, asset: Asset, cheque: Cheque, now: int) -> SeenAuthorization:
        """Return the record of this authorization, made where there is none. Raises `CoinsFull`."""
        nonce = "0x" + cheque.nonce.hex()
        key = _at(asset, cheque.payer, nonce)
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= MOST_AUTHORIZATIONS:
                self._make_room(now)
            seen = self._seen[key] = SeenAuthorization(
                network=asset.network,
                asset=asset.address.lower(),
                payer=cheque.payer.lower(),
                nonce=nonce,
                to=cheque.to.lower(),
                value=str(cheque.value),
                valid_before=cheque.valid_before,
            )
        return seen

    def why_not(self, asset: Asset, cheque: Cheque, seen: SeenAuthorization) -> str:
        """Return the reason for which the token would not move these coins, or an empty text."""
        if seen.settled:
            return NONCE_USED
        if self.balance(asset, cheque.payer) < cheque.value:
            return NOT_ENOUGH
        return ""

    def move(
        self, asset: Asset, cheque: Cheque, seen: SeenAuthorization, now: int, *, pending: bool = False
    ) -> str:
        """Move the coins, or return that reason. Both in one step: whoever is second finds the nonce used. Raises `CoinsFull`."""
        if reason := self.why_not(asset, cheque, seen):
            return reason
        if len(self._balances) + 2 > MOST_ADDRESSES:
            raise CoinsFull
        left = self.balance(asset, cheque.payer) - cheque.value
        self._balances[_at(asset, cheque.payer)] = left
        self._balances[_at(asset, cheque.to)] = self.balance(asset, cheque.to) + cheque.value
        self.block += 1
        seen.to, seen.value, seen.valid_before = cheque.to.lower(), str(cheque.value), cheque.valid_before
        seen.block, seen.settled_at, seen.pending = self.block, now, pending
        seen.transaction = (
            "0x" + sha256(f"{seen.network} {seen.asset} {seen.payer} {seen.nonce}".encode()).hexdigest()
        )
        self._by_transaction[seen.transaction] = seen
        self.changes += 1
        return ""

    def authorizations(self) -> tuple[SeenAuthorization, ...]:
        return tuple(self._seen.values())

    def authorization(self, asset: Asset, payer: str, nonce: str) -> SeenAuthorization | None:
        return self._seen.get(_at(asset, payer, nonce))

    def by_transaction(self, transaction: str) -> SeenAuthorization | None:
        return self._by_transaction.get(transaction.lower())

    def balances(self) -> list[tuple[str, str, str, int]]:
        """List network, token, address, atomic units, of all addresses that do not have what they began with."""
        found: list[tuple[str, str, str, int]] = []
        for key, amount in self._balances.items():
            network, asset, address = key.split(" ")
            found.append((network, asset, address, amount))
        return found

    def state(self) -> CoinState:
        return CoinState(
            block=self.block,
            balances={key: str(value) for key, value in self._balances.items()},
            authorizations=list(self._seen.values()),
        )

    def _make_room(self, now: int) -> None:
        """Drop the older half of what was not used, and what was used and has expired, since it is refused for that alone."""
        unused = [key for key, each in self._seen.items() if not each.settled]
        expired = [key for key, each in self._seen.items() if each.settled and each.valid_before < now]
        for key in (*unused[: len(unused) // 2 + 1], *expired):
            self._by_transaction.pop(self._seen.pop(key).transaction, None)
        if len(self._seen) >= MOST_AUTHORIZATIONS:
            raise CoinsFull


def _at(asset: Asset, *parts: str) -> Key:
    return _key(asset.network, asset.address, *parts)


def _key(*parts: str) -> Key:
    return " ".join(parts).lower()
