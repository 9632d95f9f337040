"""A node of a network, asked over JSON-RPC what became of an authorization (EIP-3009; the execution API of Ethereum).

Nothing is ever sent that changes anything. Whatever a node cannot say, or says in another form than it should, is `ChainUnreachable`:
that a payment did not happen is only ever said by a node that knows its network, and has come far enough in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import trio

from server.lib.evm.payment_networks import Network
from server.lib.http_client.failures import DeadlinePassed, FetchFailed
from server.lib.http_client.fetch import Fetcher
from server.payments.x402.envelopes import UnreadableEnvelope, open_envelope

# The first four bytes of keccak-256 of the function, and all of it of the events.
AUTHORIZATION_STATE: Final = "0xe94a0102"  # authorizationState(address,bytes32)
AUTHORIZATION_USED: Final = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
AUTHORIZATION_CANCELED: Final = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"

ANSWER_BYTES: Final = 1024 * 1024
ANSWER_VALUES: Final = 65_536
SECONDS: Final = 20.0
CONNECTIONS: Final = 4
# An authorization is valid for a day at most, which on the fastest of these networks has fewer blocks than this.
LOOK_BACK_BLOCKS: Final = 100_000
PAGE_BLOCKS: Final = 10_000
# Some nodes give less at once, and do not say how much less.
SMALLEST_PAGE_BLOCKS: Final = 500
MOST_PAGES: Final = 40
# A network may take back its last blocks.
LATE_SECONDS: Final = 120

_QUANTITY: Final = re.compile(r"0x(?:0|[1-9a-f][0-9a-f]{0,15})")
_WORD: Final = re.compile(r"0x[0-9a-f]{64}")
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{40}")


class ChainUnreachable(Exception):
    """It could not be found out. The text continues a sentence about the node, and does not name its address, which may hold a key."""


class PageTooLarge(ChainUnreachable):
    """The node refused a look at so many blocks; at fewer it may agree."""


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """The authorization was carried out, and this is the transaction that did it."""

    transaction: str
    block: int
    sender: str  # who sent it, in small letters


class Chain:
    """One network, by one node. Close it when the last question has been answered."""

    def __init__(
        self,
        url: str,
        network: Network,
        *,
        headers: Sequence[tuple[str, str]] = (),
        ca_file: Path | None = None,
        look_back: int = LOOK_BACK_BLOCKS,
        seconds: float = SECONDS,
    ) -> None:
        """Raises `ValueError` for an address, a header or a CA file that cannot be used."""
        self.network: Final = network
        self._fetcher = Fetcher(url, connections=CONNECTIONS, ca_file=ca_file)
        self._head = self._fetcher.prepare(
            "POST",
            (
                ("Content-Type", "application/json"),
                ("Accept", "application/json"),
                ("Connection", "close"),
                *headers,
            ),
        )
        self._look_back = look_back
        self._seconds = seconds
        self._is_known = False

    def __repr__(self) -> str:
        return f"<Chain {self.network.caip2}>"

    async def authorization_used(self, asset: str, payer: str, nonce: str) -> bool:
        """Carried out or cancelled, as of the node's last block. Raises `ChainUnreachable`."""
        return await self._state(asset, payer, nonce, "latest")

    async def authorization_lapsed(self, asset: str, payer: str, nonce: str, valid_before: int) -> bool:
        """Never carried out, and never to be: the network itself has passed its time. A clock of ours is not asked, and a node that lags
        behind does not say so. Raises `ChainUnreachable`."""
        head = await self._block("latest")
        if _quantity(head.get("timestamp")) < valid_before + LATE_SECONDS:
            return False
        return not await self._state(asset, payer, nonce, hex(_quantity(head.get("number"))))

    async def authorization_cancelled(self, asset: str, payer: str, nonce: str) -> bool:
        """By its owner, so that no money moved. Raises `ChainUnreachable`."""
        if not await self.authorization_used(asset, payer, nonce):
            return False
        entry = await self._find_entry(asset, payer, nonce)
        return entry is not None and _topic(entry, 0) == AUTHORIZATION_CANCELED

    async def find_transfer(
        self, asset: str, payer: str, pay_to: str, nonce: str, amount: int
    ) -> Transfer | None:
        """The transaction that carried it out, if it moved exactly this; else None. Raises `ChainUnreachable`."""
        if not await self.authorization_used(asset, payer, nonce):
            return None
        entry = await self._find_entry(asset, payer, nonce)
        if entry is None or _topic(entry, 0) != AUTHORIZATION_USED:
            return None
        transaction = _word(entry.get("transactionHash"))
        receipt = _object(await self._ask("eth_getTransactionReceipt", [transaction]))
        if receipt.get("status") != "0x1":
            raise ChainUnreachable("names a transaction that failed")
        if not _moved(_objects(receipt.get("logs")), asset, payer, pay_to, nonce, amount):
            return None
        sender = receipt.get("from")
        if not isinstance(sender, str) or not _ADDRESS.fullmatch(sender.lower()):
            raise _strange()
        return Transfer(
            transaction=transaction, block=_quantity(receipt.get("blockNumber")), sender=sender.lower()
        )

    async def check(self) -> None:
        """Whether it is a node of this network. Raises `ChainUnreachable`."""
        if _quantity(await self._exchange("eth_chainId", [])) != self.network.chain_id:
            raise ChainUnreachable(f"is not a node of {self.network.title}")
        self._is_known = True

    async def aclose(self) -> None:
        await self._fetcher.aclose()

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _state(self, asset: str, payer: str, nonce: str, block: str) -> bool:
        data = AUTHORIZATION_STATE + _padded(payer)[2:] + nonce[2:].lower()
        word = _word(await self._ask("eth_call", [{"to": asset, "data": data}, block]))
        if int(word, 16) > 1:
            raise ChainUnreachable("says of an authorization neither yes nor no")
        return int(word, 16) == 1

    async def _block(self, tag: str) -> Mapping[str, object]:
        return _object(await self._ask("eth_getBlockByNumber", [tag, False]))

    async def _find_entry(self, asset: str, payer: str, nonce: str) -> Mapping[str, object] | None:
        """The log entry of its use or its cancellation, looked for from the last block back."""
        newest = _quantity(await self._ask("eth_blockNumber", []))
        oldest = max(0, newest - self._look_back)
        page = PAGE_BLOCKS
        topics = [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], _padded(payer), nonce.lower()]
        for _ in range(MOST_PAGES):
            if newest < oldest:
                return None
            first = max(oldest, newest - page + 1)
            wanted = {"address": asset, "fromBlock": hex(first), "toBlock": hex(newest), "topics": topics}
            try:
                entries = _objects(await self._ask("eth_getLogs", [wanted]))
            except PageTooLarge:
                if page <= SMALLEST_PAGE_BLOCKS:
                    raise
                page = max(SMALLEST_PAGE_BLOCKS, page // 4)
                continue
            found = [each for each in entries if _is_of(each, asset, payer, nonce)]
            if found:
                return found[0]
            newest = first - 1
        return None

    async def _ask(self, method: str, params: list[Any]) -> object:
        if not self._is_known:
            await self.check()
        return await self._exchange(method, params)

    async def _exchange(self, method: str, params: list[Any]) -> object:
        """The result. Raises `ChainUnreachable`."""
        question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            status, body = await self._fetcher.exchange(
                self._head,
                msgspec.json.encode(question),
                deadline=trio.current_time() + self._seconds,
                limit=ANSWER_BYTES,
                beginning=4096,
            )
        except FetchFailed as problem:
            raise ChainUnreachable(str(problem)) from problem
        except DeadlinePassed:
            raise ChainUnreachable(f"did not answer within {self._seconds:g} s") from None
        answer = _answer(body)
        if answer is not None and isinstance(error := answer.get("error"), Mapping):
            # Its message may hold anything, the address with its key as well.
            code: object = cast("Mapping[str, object]", error).get("code")
            refused = PageTooLarge if method == "eth_getLogs" else ChainUnreachable
            raise refused(f"refused {method}" + (f" with code {code}" if type(code) is int else ""))
        if not 200 <= status < 300:
            raise ChainUnreachable(f"answered with status {status}")
        if answer is None or answer.get("result") is None:
            raise ChainUnreachable(f"gave no answer to {method}")
        return answer["result"]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _moved(
    entries: Sequence[Mapping[str, object]], asset: str, payer: str, pay_to: str, nonce: str, amount: int
) -> bool:
    """Whether the transfer of just this authorization is the one that was signed. A transaction may carry out several; each writes its
    use, and its transfer next."""
    of_asset = [each for each in entries if _same(each.get("address"), asset)]
    used = next((at for at, each in enumerate(of_asset) if _is_of(each, asset, payer, nonce)), None)
    if used is None:
        raise ChainUnreachable("names a transaction that has nothing of this authorization")
    transfer = next((each for each in of_asset[used + 1 :] if _topic(each, 0) == TRANSFER), None)
    return (
        transfer is not None
        and _topic(transfer, 1) == _padded(payer)
        and _topic(transfer, 2) == _padded(pay_to)
        and int(_word(transfer.get("data")), 16) == amount
    )


def _is_of(entry: Mapping[str, object], asset: str, payer: str, nonce: str) -> bool:
    """Nodes are asked for nothing else; it is looked at all the same."""
    return (
        _same(entry.get("address"), asset)
        and entry.get("removed") is not True
        and _topic(entry, 0) in (AUTHORIZATION_USED, AUTHORIZATION_CANCELED)
        and _topic(entry, 1) == _padded(payer)
        and _topic(entry, 2) == nonce.lower()
    )


def _topic(entry: Mapping[str, object], at: int) -> str:
    topics = entry.get("topics")
    found = cast("list[object]", topics)[at : at + 1] if isinstance(topics, list) else []
    return found[0].lower() if found and isinstance(found[0], str) else ""


def _padded(address: str) -> str:
    """As a word of 32 bytes."""
    return "0x" + address[2:].lower().rjust(64, "0")


def _same(value: object, address: str) -> bool:
    return isinstance(value, str) and value.lower() == address.lower()


def _answer(body: bytes) -> Mapping[str, object] | None:
    try:
        return open_envelope(body.decode("utf-8"), limit=ANSWER_BYTES, values=ANSWER_VALUES)
    except (UnicodeDecodeError, UnreadableEnvelope):
        return None


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _strange()
    return cast("Mapping[str, object]", value)


def _objects(value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, list):
        raise _strange()
    return [_object(each) for each in cast("list[object]", value)]


def _word(value: object) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value.lower()):
        raise _strange()
    return value.lower()


def _quantity(value: object) -> int:
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value.lower()):
        raise _strange()
    return int(value, 16)


def _strange() -> ChainUnreachable:
    return ChainUnreachable("answered in another form than it should")
