from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from server.lib.evm.keccak import keccak256
from server.lib.evm.payment_networks import find_network
from server.payments.x402 import chain_client as under_test
from server.payments.x402.chain_client import Chain, ChainUnreachable, Transfer
from tests.agents.python.fake_agent import PATIENCE, Exchange, FakeAgent, fake_agent, pass_when
from tests.payments.x402.builders import NONCE, NOW, PAYEE, PAYER, SEPOLIA, TRANSACTION

BASE_SEPOLIA = find_network("base-sepolia")
assert BASE_SEPOLIA is not None
NETWORK = BASE_SEPOLIA
HEAD = 2_000_000
AT = 1_999_000
YES, NO = "0x" + "1".rjust(64, "0"), "0x" + "0" * 64
OTHER = "0x" + "99" * 20

Answer = Callable[[list[Any]], Any]


def word(address: str) -> str:
    return "0x" + address[2:].lower().rjust(64, "0")


def log(
    topic: str, *topics: str, data: str = "0x", address: str = SEPOLIA.address, **more: Any
) -> dict[str, Any]:
    found = {"address": address, "topics": [topic, *topics], "data": data, "transactionHash": TRANSACTION}
    return {**found, "blockNumber": hex(AT), "removed": False, **more}


def used(nonce: str = NONCE, **more: Any) -> dict[str, Any]:
    return log(under_test.AUTHORIZATION_USED, word(PAYER), nonce, **more)


def cancelled() -> dict[str, Any]:
    return log(under_test.AUTHORIZATION_CANCELED, word(PAYER), NONCE)


SENDER = "0x" + "Fa" * 20


def moved(payer: str = PAYER, to: str = PAYEE, amount: int = 10_000, **more: Any) -> dict[str, Any]:
    return log(under_test.TRANSFER, word(payer), word(to), data="0x" + hex(amount)[2:].rjust(64, "0"), **more)


class Node:
    """A node of a network: what it knows, and what it was asked."""

    def __init__(self, *logs: dict[str, Any], state: object = YES, **answers: object) -> None:
        self.asked: list[tuple[str, list[Any]]] = []
        self.logs = list(logs)
        self.answers: dict[str, object] = {
            "eth_chainId": "0x14a34",
            "eth_blockNumber": hex(HEAD),
            "eth_call": state,
            "eth_getBlockByNumber": {"number": hex(HEAD), "timestamp": hex(NOW)},
            "eth_getLogs": self.found,
            "eth_getTransactionReceipt": {
                "status": "0x1",
                "blockNumber": hex(AT),
                "logs": self.logs,
                "from": SENDER,
            },
            **answers,
        }

    def found(self, params: list[Any]) -> object:
        wanted = params[0]
        first, last = int(wanted["fromBlock"], 16), int(wanted["toBlock"], 16)
        assert 0 <= first <= last <= HEAD
        assert wanted["address"] == SEPOLIA.address
        assert wanted["topics"][1:] == [word(PAYER), NONCE]
        return [
            each for each in self.logs if first <= AT <= last and each["topics"][0] in wanted["topics"][0]
        ]

    async def __call__(self, exchange: Exchange) -> None:
        question = exchange.request.json
        assert question["jsonrpc"] == "2.0"
        self.asked.append((question["method"], question["params"]))
        answer: Any = self.answers[question["method"]]
        if callable(answer):
            answer = answer(question["params"])
        if isinstance(answer, bytes):
            await exchange.reply(answer)
            return
        said: dict[str, Any] = answer if is_refusal(answer) else {"result": answer}
        await exchange.reply({"jsonrpc": "2.0", "id": question["id"], **said})

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]


def is_refusal(answer: object) -> bool:
    return isinstance(answer, dict) and "error" in answer


def refuses(code: object = -32000) -> dict[str, Any]:
    return {"error": {"code": code, "message": "the key k3y of https://node.example is used up"}}


@asynccontextmanager
async def asking(node: Node, **options: Any) -> AsyncGenerator[Chain]:
    async with fake_agent(node) as agent:
        chain = Chain(url_of(agent), NETWORK, **options)
        try:
            with trio.fail_after(PATIENCE):
                yield chain
        finally:
            await chain.aclose()


def url_of(agent: FakeAgent) -> str:
    return f"http://localhost:{agent.port}/v2/k3y"


async def transfer(chain: Chain, **changes: Any) -> Transfer | None:
    wanted: dict[str, Any] = {
        "asset": SEPOLIA.address,
        "payer": PAYER,
        "pay_to": PAYEE,
        "nonce": NONCE,
        "amount": 10_000,
    }
    return await chain.find_transfer(**{**wanted, **changes})


@pytest.mark.parametrize(
    ("declared", "constant"),
    [
        ("authorizationState(address,bytes32)", under_test.AUTHORIZATION_STATE),
        ("AuthorizationUsed(address,bytes32)", under_test.AUTHORIZATION_USED),
        ("AuthorizationCanceled(address,bytes32)", under_test.AUTHORIZATION_CANCELED),
        ("Transfer(address,address,uint256)", under_test.TRANSFER),
    ],
)
def test_what_is_asked_for_is_named_by_its_hash(declared: str, constant: str) -> None:
    assert ("0x" + keccak256(declared.encode()).hex()).startswith(constant)
    assert len(constant) in (10, 66)


# ── the state of an authorization ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("state", "is_used"), [(YES, True), (NO, False)])
async def test_the_token_is_asked_whether_an_authorization_was_used(state: str, is_used: bool) -> None:
    node = Node(state=state)
    async with asking(node) as chain:
        assert await chain.authorization_used(SEPOLIA.address, PAYER, NONCE) is is_used
    data = "0xe94a0102" + word(PAYER)[2:] + NONCE[2:]
    assert node.asked == [
        ("eth_chainId", []),
        ("eth_call", [{"to": SEPOLIA.address, "data": data}, "latest"]),
    ]


async def test_a_node_is_asked_once_whose_it_is() -> None:
    node = Node()
    async with asking(node) as chain:
        await chain.authorization_used(SEPOLIA.address, PAYER, NONCE)
        await chain.authorization_used(SEPOLIA.address, PAYER, NONCE)
    assert node.methods() == ["eth_chainId", "eth_call", "eth_call"]


async def test_a_node_of_another_network_is_never_believed() -> None:
    node = Node(state=NO, eth_chainId="0x2105")
    async with asking(node) as chain:
        for _ in range(2):
            with pytest.raises(ChainUnreachable, match=r"^is not a node of Base Sepolia$"):
                await chain.authorization_used(SEPOLIA.address, PAYER, NONCE)
    assert node.methods() == ["eth_chainId"] * 2


@pytest.mark.parametrize(
    "state",
    ["0x", "0x1", None, True, 1, "0x" + "2".rjust(64, "0"), "0x" + "f" * 64, "0x" + "g" * 64, YES[2:], YES + "00", [], {}, b"<html>", b"", b"[]",
     b'{"result": "%b"' % NO.encode(), b'{"result": "x", "result": "%b"}' % NO.encode(), refuses()],
    ids=lambda state: repr(state)[:24],
)  # fmt: skip
async def test_what_is_no_clear_answer_is_none(state: object) -> None:
    async with asking(Node(state=state)) as chain:
        with pytest.raises(ChainUnreachable) as raised:
            await chain.authorization_used(SEPOLIA.address, PAYER, NONCE)
        assert "k3y" not in str(raised.value)


async def test_trouble_names_neither_the_address_nor_what_the_node_said() -> None:
    async with asking(Node(state=refuses(-32005))) as chain:
        with pytest.raises(ChainUnreachable, match=r"^refused eth_call with code -32005$"):
            await chain.authorization_used(SEPOLIA.address, PAYER, NONCE)
        assert "k3y" not in repr(chain)


async def test_a_node_that_does_not_answer_is_given_up(mock_clock: trio.testing.MockClock) -> None:
    came = trio.Event()

    class Hanging(Node):
        async def __call__(self, exchange: Exchange) -> None:
            came.set()
            await exchange.wait_gone()

    async with asking(Hanging(), seconds=0.05) as chain, trio.open_nursery() as nursery:
        nursery.start_soon(pass_when, mock_clock, 0.05, came)
        with pytest.raises(ChainUnreachable, match=r"^did not answer within 0\.05 s$"):
            await chain.check()


async def test_a_node_that_says_too_much_is_cut_off() -> None:
    async with asking(Node(state=b'"' + b"x" * (under_test.ANSWER_BYTES + 1) + b'"')) as chain:
        with pytest.raises(ChainUnreachable, match="more than 1024 KiB"):
            await chain.authorization_used(SEPOLIA.address, PAYER, NONCE)


async def test_a_status_that_is_none_of_success_is_no_answer() -> None:
    async def unwell(exchange: Exchange) -> None:
        await exchange.reply({"jsonrpc": "2.0", "id": 1, "result": "0x14a34"}, status=502)

    async with fake_agent(unwell) as agent:
        chain = Chain(url_of(agent), NETWORK)
        with pytest.raises(ChainUnreachable, match=r"^answered with status 502$"):
            await chain.check()
        await chain.aclose()


# ── it will never be carried out ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("valid_before", "state", "lapsed"),
    [
        (NOW - 121, NO, True),
        (NOW - 120, NO, True),
        (NOW - 119, NO, False),
        (NOW + 300, NO, False),
        (NOW - 500, YES, False),
    ],
)
async def test_an_authorization_has_lapsed_when_its_network_is_past_its_time_without_it(
    valid_before: int, state: str, lapsed: bool
) -> None:
    node = Node(state=state)
    async with asking(node) as chain:
        assert await chain.authorization_lapsed(SEPOLIA.address, PAYER, NONCE, valid_before) is lapsed
    if "eth_call" in node.methods():
        assert node.asked[-1][1][1] == hex(HEAD), "as of the very block whose time was looked at"


@pytest.mark.parametrize(
    "block",
    [
        None,
        {},
        {"number": hex(HEAD)},
        {"number": "1", "timestamp": "2"},
        "0x1",
        {"number": hex(HEAD), "timestamp": -1},
    ],
)
async def test_without_a_sound_block_nothing_has_lapsed(block: object) -> None:
    async with asking(Node(state=NO, eth_getBlockByNumber=block)) as chain:
        with pytest.raises(ChainUnreachable):
            await chain.authorization_lapsed(SEPOLIA.address, PAYER, NONCE, 0)


# ── the transfer ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_transaction_of_a_transfer_is_found_and_looked_into() -> None:
    node = Node(used(), moved())
    async with asking(node) as chain:
        assert await transfer(chain) == Transfer(transaction=TRANSACTION, block=AT, sender=SENDER.lower())
        assert not await chain.authorization_cancelled(SEPOLIA.address, PAYER, NONCE)
    assert node.asked[4] == ("eth_getTransactionReceipt", [TRANSACTION])


async def test_addresses_and_hashes_are_the_same_in_capitals() -> None:
    def loud(entry: dict[str, Any]) -> dict[str, Any]:
        topics = ["0x" + topic[2:].upper() for topic in entry["topics"]]
        return {**entry, "topics": topics, "address": entry["address"].lower()}

    both = [loud(used()), loud(moved())]
    async with asking(Node(*both, eth_getLogs=both[:1])) as chain:
        assert await transfer(chain, payer="0x" + PAYER[2:].upper(), nonce=NONCE) is not None


async def test_what_was_not_used_is_not_looked_for() -> None:
    node = Node(used(), moved(), state=NO)
    async with asking(node) as chain:
        assert await transfer(chain) is None
        assert not await chain.authorization_cancelled(SEPOLIA.address, PAYER, NONCE)
    assert "eth_getLogs" not in node.methods()


async def test_a_cancelled_authorization_moved_nothing_and_is_told_apart() -> None:
    async with asking(Node(cancelled())) as chain:
        assert await transfer(chain) is None
        assert await chain.authorization_cancelled(SEPOLIA.address, PAYER, NONCE)


@pytest.mark.parametrize(
    "logs",
    [
        [used()],
        [used(), moved(to=OTHER)],
        [used(), moved(payer=OTHER)],
        [used(), moved(amount=9_999)],
        [used(), moved(amount=10_001)],
        [used(), moved(address=OTHER)],
        [moved(), used()],
        [used(), moved(to=OTHER), moved()],
        [used("0x" + "11" * 32), moved(), used(), moved(to=OTHER)],
    ],
    ids=[
        "none",
        "to another",
        "of another",
        "less",
        "more",
        "of another token",
        "before it",
        "after another",
        "of another authorization",
    ],
)
async def test_a_transaction_that_moved_something_else_is_not_it(logs: list[dict[str, Any]]) -> None:
    async with asking(Node(*logs, eth_getLogs=[used()])) as chain:
        assert await transfer(chain) is None


async def test_of_several_authorizations_in_one_transaction_each_has_its_own_transfer() -> None:
    logs = [
        used("0x" + "11" * 32),
        moved(amount=1),
        moved(address=OTHER, amount=2),
        used(),
        log("0x" + "77" * 32),
        moved(),
    ]
    async with asking(Node(*logs, eth_getLogs=[used()])) as chain:
        assert await transfer(chain) is not None
        assert await transfer(chain, amount=1) is None


@pytest.mark.parametrize(
    "receipt",
    [
        None, {}, [], "0x1",
        {"status": "0x0", "blockNumber": hex(AT), "logs": [used(), moved()]},
        {"status": "0x1", "blockNumber": hex(AT), "logs": []},
        {"status": "0x1", "blockNumber": hex(AT), "logs": [moved()]},
        {"status": "0x1", "blockNumber": hex(AT), "logs": "x"},
        {"status": "0x1", "blockNumber": None, "logs": [used(), moved()]},
        {"status": "0x1", "blockNumber": hex(AT), "logs": [used(), {**moved(), "data": "0x"}]},
        {"status": "0x1", "blockNumber": hex(AT), "logs": [used(), {**moved(), "data": "0x1"}]},
        {"status": "0x1", "blockNumber": hex(AT), "logs": [used(), 7]},
    ],
    ids=lambda receipt: repr(receipt)[:40],
)  # fmt: skip
async def test_a_receipt_that_does_not_fit_is_no_answer(receipt: object) -> None:
    async with asking(Node(used(), eth_getTransactionReceipt=receipt)) as chain:
        with pytest.raises(ChainUnreachable):
            await transfer(chain)


@pytest.mark.parametrize(
    "entries",
    [
        [log(under_test.AUTHORIZATION_USED, word(OTHER), NONCE)],
        [used("0x" + "11" * 32)],
        [used(address=OTHER)],
        [used(removed=True)],
        [{"address": SEPOLIA.address}],
        [{"address": SEPOLIA.address, "topics": "x"}],
        [{"address": SEPOLIA.address, "topics": [7]}],
    ],
)
async def test_entries_that_were_not_asked_for_are_not_taken(entries: list[Any]) -> None:
    async with asking(Node(eth_getLogs=entries), look_back=100) as chain:
        assert await transfer(chain) is None


@pytest.mark.parametrize("entries", ["x", 7, [7], {"a": 1}, refuses()])
async def test_a_list_of_entries_that_is_none_is_no_answer(entries: object) -> None:
    async with asking(Node(eth_getLogs=entries)) as chain:
        with pytest.raises(ChainUnreachable):
            await transfer(chain)


async def test_it_is_looked_for_from_the_last_block_back_page_by_page() -> None:
    node = Node()
    async with asking(node, look_back=25_000) as chain:
        assert await transfer(chain) is None
    wanted = [params[0] for method, params in node.asked if method == "eth_getLogs"]
    pages = [(int(each["fromBlock"], 16), int(each["toBlock"], 16)) for each in wanted]
    assert pages == [(HEAD - 9_999, HEAD), (HEAD - 19_999, HEAD - 10_000), (HEAD - 25_000, HEAD - 20_000)]


async def test_a_young_network_is_looked_through_to_its_beginning() -> None:
    node = Node(eth_blockNumber="0x5")
    async with asking(node) as chain:
        assert await transfer(chain) is None
    assert node.asked[-1][1][0]["fromBlock"] == "0x0"
    assert node.methods().count("eth_getLogs") == 1


async def test_a_node_that_gives_less_at_once_is_asked_for_less() -> None:
    def at_most_800(params: list[Any]) -> object:
        size = int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) + 1
        return refuses() if size > 800 else node.found(params)

    node = Node(used(), moved())
    node.answers["eth_getLogs"] = at_most_800
    async with asking(node) as chain:
        assert await transfer(chain) == Transfer(transaction=TRANSACTION, block=AT, sender=SENDER.lower())


async def test_looking_ends_however_little_a_node_gives_at_once() -> None:
    def at_most_500(params: list[Any]) -> object:
        size = int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) + 1
        return refuses() if size > 500 else []

    node = Node(eth_getLogs=at_most_500)
    async with asking(node) as chain:
        assert await transfer(chain) is None
    assert node.methods().count("eth_getLogs") == under_test.MOST_PAGES


def test_an_address_that_cannot_be_used_is_refused_at_once() -> None:
    with pytest.raises(ValueError):
        Chain("ws://node.example", NETWORK)
