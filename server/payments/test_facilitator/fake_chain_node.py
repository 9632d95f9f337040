"""The chain as somebody hears of it who asks, where there is none: the few JSON-RPC calls by which a settlement is looked up.

The token's view functions `authorizationState` (EIP-3009) and `balanceOf`, its events AuthorizationUsed and Transfer, receipts, and where
the chain stands: a block for each settlement. Everything else is refused. The execution API of Ethereum."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import msgspec

from server.lib.evm.payment_networks import Network
from server.payments.test_facilitator.coins import FIRST_BLOCK, Coins, SeenAuthorization

# As public nodes have it.
MOST_LOGS: Final = 10_000

AUTHORIZATION_STATE: Final = "e94a0102"  # authorizationState(address,bytes32)
BALANCE_OF: Final = "70a08231"  # balanceOf(address)
# AuthorizationUsed(address,bytes32), Transfer(address,address,uint256)
AUTHORIZATION_USED: Final = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
UNKNOWN_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
LIMIT_EXCEEDED: Final = -32005
NO_HISTORY: Final = -32000
REVERTED: Final = 3

_QUANTITY: Final = re.compile(r"0x(0|[1-9a-fA-F][0-9a-fA-F]{0,15})")
_WORD: Final = re.compile(r"0x[0-9a-fA-F]{64}")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_CALL_DATA: Final = re.compile(r"0x([0-9a-fA-F]{8})((?:[0-9a-fA-F]{64}){0,4})")
_TAGS: Final = frozenset({"latest", "pending", "safe", "finalized"})

Log: TypeAlias = dict[str, Any]


class NodeRefused(Exception):
    """The JSON-RPC error that answers the call."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One network, as it is now."""

    coins: Coins
    network: Network
    now: int


def answer_rpc(node: NodeView, body: bytes) -> bytes:
    """Answer one request with one response."""
    call_id: Any = None
    try:
        call = _read(body)
        call_id = call.get("id")
        result = _call(node, call)
    except NodeRefused as refused:
        error = {"code": refused.code, "message": str(refused)}
        return json.dumps({"jsonrpc": "2.0", "id": call_id, "error": error}).encode()
    return json.dumps({"jsonrpc": "2.0", "id": call_id, "result": result}).encode()


def _read(body: bytes) -> dict[str, Any]:
    try:
        call: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise NodeRefused(PARSE_ERROR, "this is no JSON") from None
    if not isinstance(call, dict):
        raise NodeRefused(INVALID_REQUEST, "one request at a time is answered here")
    found = cast("dict[str, Any]", call)
    if not isinstance(found.get("id"), (str, int, float, type(None))):
        found["id"] = None
        raise NodeRefused(INVALID_REQUEST, "the id is no text or number")
    return found


def _call(node: NodeView, call: Mapping[str, Any]) -> Any:
    method, params = call.get("method"), call.get("params", [])
    carry_out = _METHODS.get(method) if isinstance(method, str) else None
    if carry_out is None:
        raise NodeRefused(UNKNOWN_METHOD, f"only {', '.join(_METHODS)} are answered here")
    if not isinstance(params, list):
        raise NodeRefused(INVALID_PARAMS, "params is no list")
    return carry_out(node, cast("list[Any]", params))


# ── the calls ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _view(node: NodeView, params: Sequence[Any]) -> str:
    asked = _object(params)
    to, data = asked.get("to"), asked.get("data", asked.get("input"))
    if not isinstance(to, str) or not isinstance(data, str):
        raise NodeRefused(INVALID_PARAMS, "a call has `to` and `data`")
    coins, block = node.coins, _block(node, params[1] if len(params) > 1 else None)
    token = coins.token(node.network.caip2, to)
    if token is None:
        return "0x"  # there is no contract
    match = _CALL_DATA.fullmatch(data)
    selector, words = (match[1].lower(), match[2]) if match else ("", "")
    if selector == AUTHORIZATION_STATE and len(words) == 128:
        seen = coins.authorization(token, _address_in(words[:64]), "0x" + words[64:])
        return _word(int(seen is not None and seen.settled and seen.block <= block))
    if selector == BALANCE_OF and len(words) == 64:
        if block < coins.block:
            raise NodeRefused(NO_HISTORY, "balances of earlier blocks are not kept")
        return _word(coins.balance(token, _address_in(words)))
    raise NodeRefused(REVERTED, "execution reverted")


def _block_by_number(node: NodeView, params: Sequence[Any]) -> dict[str, Any] | None:
    """Return a block. The newest is as young as the clock says, since real chains go on when nobody pays."""
    block = _block(node, params[0] if params else None)
    times = {each.block: each.settled_at for each in node.coins.authorizations() if each.settled}
    time = node.now if block == node.coins.block else times.get(block)
    if time is None:
        return None
    return {
        "number": hex(block),
        "hash": _block_hash(block),
        "parentHash": _block_hash(block - 1),
        "timestamp": hex(time),
        "transactions": [],
    }


def _logs(node: NodeView, params: Sequence[Any]) -> list[Log]:
    asked = _object(params)
    first, last = _block(node, asked.get("fromBlock")), _block(node, asked.get("toBlock"))
    addresses, topics = asked.get("address"), asked.get("topics", [])
    if not isinstance(topics, list):
        raise NodeRefused(INVALID_PARAMS, "topics is no list")
    wanted = [None if each is None else _either(each) for each in cast("list[Any]", topics)]
    contracts = None if addresses is None else _either(addresses)
    found: list[Log] = []
    for seen in node.coins.authorizations():
        if seen.network != node.network.caip2 or not seen.settled or not first <= seen.block <= last:
            continue
        found += [log for log in _logs_of(seen) if _fits(log, contracts, wanted)]
        if len(found) > MOST_LOGS:
            raise NodeRefused(LIMIT_EXCEEDED, f"more than {MOST_LOGS} logs")
    return sorted(found, key=lambda log: (int(log["blockNumber"], 16), int(log["logIndex"], 16)))


def _receipt(node: NodeView, params: Sequence[Any]) -> dict[str, Any] | None:
    if len(params) != 1 or not isinstance(params[0], str) or _WORD.fullmatch(params[0]) is None:
        raise NodeRefused(INVALID_PARAMS, "the hash of a transaction is 0x and 64 hex digits")
    seen = node.coins.by_transaction(params[0])
    if seen is None or seen.network != node.network.caip2:
        return None
    return {
        "transactionHash": seen.transaction,
        "transactionIndex": "0x0",
        "blockHash": _block_hash(seen.block),
        "blockNumber": hex(seen.block),
        "from": FACILITATOR,
        "to": seen.asset,
        "contractAddress": None,
        "status": "0x1",
        "type": "0x2",
        "gasUsed": "0x15f90",
        "cumulativeGasUsed": "0x15f90",
        "effectiveGasPrice": "0x1",
        "logsBloom": "0x" + "0" * 512,
        "logs": list(_logs_of(seen)),
    }


_METHODS: Final[Mapping[str, Callable[[NodeView, Sequence[Any]], Any]]] = MappingProxyType(
    {
        "eth_chainId": lambda node, _: hex(node.network.chain_id),
        "eth_blockNumber": lambda node, _: hex(node.coins.block),
        "eth_getBlockByNumber": _block_by_number,
        "eth_call": _view,
        "eth_getLogs": _logs,
        "eth_getTransactionReceipt": _receipt,
    }
)

# Who sends the transactions. Nobody has its key, for it is no key's address.
FACILITATOR: Final = "0x" + sha256(b"the test facilitator").hexdigest()[:40]


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _logs_of(seen: SeenAuthorization) -> tuple[Log, Log]:
    payer = _padded(seen.payer)
    used = _log(seen, 0, [AUTHORIZATION_USED, payer, seen.nonce], "0x")
    moved = _log(seen, 1, [TRANSFER, payer, _padded(seen.to)], _word(int(seen.value)))
    return used, moved


def _log(seen: SeenAuthorization, index: int, topics: list[str], data: str) -> Log:
    return {
        "address": seen.asset,
        "topics": topics,
        "data": data,
        "blockNumber": hex(seen.block),
        "blockHash": _block_hash(seen.block),
        "transactionHash": seen.transaction,
        "transactionIndex": "0x0",
        "logIndex": hex(index),
        "removed": False,
    }


def _fits(log: Log, contracts: frozenset[str] | None, wanted: Sequence[frozenset[str] | None]) -> bool:
    if contracts is not None and log["address"] not in contracts:
        return False
    topics: list[str] = log["topics"]
    if len(wanted) > len(topics):
        return False
    return all(each is None or topic in each for each, topic in zip(wanted, topics, strict=False))


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _object(params: Sequence[Any]) -> Mapping[str, Any]:
    if not params or not isinstance(params[0], dict):
        raise NodeRefused(INVALID_PARAMS, "the first parameter is no object")
    return cast("Mapping[str, Any]", params[0])


def _either(value: Any) -> frozenset[str]:
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in values):
        raise NodeRefused(INVALID_PARAMS, "a filter is a text, or a list of texts")
    return frozenset(each.lower() for each in values)


def _block(node: NodeView, value: Any) -> int:
    if value is None or (isinstance(value, str) and value in _TAGS):
        return node.coins.block
    if value == "earliest":
        return FIRST_BLOCK
    if not isinstance(value, str) or _QUANTITY.fullmatch(value) is None:
        raise NodeRefused(INVALID_PARAMS, "a block is a number in hex without leading zeros, or latest")
    return int(value, 16)


def _block_hash(block: int) -> str:
    return "0x" + sha256(b"block %d" % block).hexdigest()


def _word(number: int) -> str:
    return f"0x{number:064x}"


def _padded(address: str) -> str:
    return "0x" + "0" * 24 + address[2:]


def _address_in(word: str) -> str:
    return "0x" + word[24:]
