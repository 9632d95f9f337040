"""What is heard by somebody who asks the chain, where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from server.lib.evm.keccak import keccak256
from server.lib.evm.payment_networks import usual_asset
from server.payments.test_facilitator import fake_chain_node
from tests.payments.test_facilitator.payer import (
    EACH,
    NOW,
    PAY_TO,
    USDC,
    Facilitating,
    Payer,
    body_2,
    facilitating,
    requirements,
)

PAYER = Payer()
OTHER = Payer(Payer().key.__class__((8).to_bytes(32, "big")))


def word(text: str) -> str:
    return text.removeprefix("0x").lower().rjust(64, "0")


async def call(facilitator: Facilitating, method: str, *params: object, path: str = "/rpc") -> Any:
    answer = await facilitator.said(
        path, {"jsonrpc": "2.0", "id": 9, "method": method, "params": list(params)}
    )
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 9)
    return answer["error"] if "error" in answer else answer["result"]


async def used(facilitator: Facilitating, payer: str, nonce: int) -> bool:
    data = f"0x{fake_chain_node.AUTHORIZATION_STATE}{word(payer)}{nonce:064x}"
    found = await call(facilitator, "eth_call", {"to": USDC.address, "data": data}, "latest")
    assert len(found) == 66
    return bool(int(found, 16))


async def balance(facilitator: Facilitating, address: str) -> int:
    found = await call(
        facilitator,
        "eth_call",
        {"to": USDC.address, "input": f"0x{fake_chain_node.BALANCE_OF}{word(address)}"},
    )
    return int(found, 16)


def test_functions_and_events_have_the_numbers_that_their_names_hash_to() -> None:
    assert keccak256(b"authorizationState(address,bytes32)")[:4].hex() == fake_chain_node.AUTHORIZATION_STATE
    assert keccak256(b"balanceOf(address)")[:4].hex() == fake_chain_node.BALANCE_OF
    assert "0x" + keccak256(b"AuthorizationUsed(address,bytes32)").hex() == fake_chain_node.AUTHORIZATION_USED
    assert "0x" + keccak256(b"Transfer(address,address,uint256)").hex() == fake_chain_node.TRANSFER


async def test_an_authorization_is_used_once_it_was_settled_also_if_nobody_was_told() -> None:
    async with facilitating() as facilitator:
        await facilitator.said("/verify", body_2(PAYER.signed()))
        assert not await used(facilitator, PAYER.address, 1)
        await facilitator.switch(settle="504-after-settle")
        await facilitator.ask("/settle", body_2(PAYER.signed()))
        assert await used(facilitator, PAYER.address, 1)
        assert not await used(facilitator, PAYER.address, 2)
        assert not await used(facilitator, PAY_TO, 1)
        assert await balance(facilitator, PAYER.address) == EACH - 10_000
        assert await balance(facilitator, PAY_TO) == EACH + 10_000


async def test_the_transaction_of_an_authorization_is_found_by_its_event_and_has_the_transfer_in_its_receipt() -> (
    None
):
    async with facilitating() as facilitator:
        await facilitator.said("/settle", body_2(OTHER.signed(nonce=1)))
        before = int(await call(facilitator, "eth_blockNumber"), 16)
        settled = await facilitator.said("/settle", body_2(PAYER.signed(nonce=1)))
        await facilitator.said("/settle", body_2(PAYER.signed(nonce=2)))
        assert int(await call(facilitator, "eth_blockNumber"), 16) == before + 2
        topics = [fake_chain_node.AUTHORIZATION_USED, "0x" + word(PAYER.address), f"0x{1:064x}"]
        asked = {"address": USDC.address, "topics": topics, "fromBlock": "earliest", "toBlock": "latest"}
        (log,) = await call(facilitator, "eth_getLogs", asked)
        assert log["transactionHash"] == settled["transaction"]
        assert (log["topics"], int(log["blockNumber"], 16), log["removed"]) == (topics, before + 1, False)
        receipt = await call(facilitator, "eth_getTransactionReceipt", settled["transaction"])
        assert (receipt["status"], receipt["transactionHash"]) == ("0x1", settled["transaction"])
        assert receipt["to"] == USDC.address.lower()
        assert receipt["logs"][0] == log
        moved = receipt["logs"][1]
        assert moved["topics"] == [fake_chain_node.TRANSFER, "0x" + word(PAYER.address), "0x" + word(PAY_TO)]
        assert int(moved["data"], 16) == 10_000
        assert await call(facilitator, "eth_getTransactionReceipt", "0x" + "0" * 64) is None


async def test_logs_are_filtered_by_block_contract_and_topic_in_every_way_of_writing_it() -> None:
    async with facilitating() as facilitator:
        start = int(await call(facilitator, "eth_blockNumber"), 16)
        for nonce in (1, 2, 3):
            await facilitator.said("/settle", body_2(PAYER.signed(nonce=nonce)))

        async def blocks(**asked: object) -> list[int]:
            found = await call(facilitator, "eth_getLogs", {"fromBlock": "earliest", **asked})
            return [int(log["blockNumber"], 16) - start for log in found]

        assert await blocks() == [1, 1, 2, 2, 3, 3]
        assert await blocks(topics=[fake_chain_node.TRANSFER]) == [1, 2, 3]
        assert await blocks(topics=[[fake_chain_node.TRANSFER, fake_chain_node.AUTHORIZATION_USED]]) == [
            1,
            1,
            2,
            2,
            3,
            3,
        ]
        assert await blocks(topics=[None, None, f"0x{2:064x}"]) == [2]
        assert await blocks(topics=[None, None, None, None]) == []
        assert await blocks(topics=[fake_chain_node.TRANSFER.upper().replace("0X", "0x")]) == [1, 2, 3]
        assert await blocks(fromBlock=hex(start + 2), toBlock=hex(start + 2)) == [2, 2]
        assert await blocks(fromBlock="latest") == [3, 3]
        assert await blocks(address=[PAY_TO, USDC.address.upper().replace("0X", "0x")]) == [1, 1, 2, 2, 3, 3]
        assert await blocks(address=PAY_TO) == []


async def test_each_network_is_a_chain_of_its_own_and_the_first_is_the_one_without_a_number() -> None:
    async with facilitating("base-sepolia", "avalanche-fuji") as facilitator:
        assert int(await call(facilitator, "eth_chainId"), 16) == 84532
        assert int(await call(facilitator, "eth_chainId", path="/rpc/84532"), 16) == 84532
        assert int(await call(facilitator, "eth_chainId", path="/rpc/43113"), 16) == 43113
        settled = await facilitator.said("/settle", body_2(PAYER.signed()))
        found = await call(
            facilitator, "eth_getTransactionReceipt", settled["transaction"], path="/rpc/43113"
        )
        assert found is None
        assert (await call(facilitator, "eth_getLogs", {"fromBlock": "earliest"}, path="/rpc/43113")) == []


async def test_the_chain_goes_on_by_the_clock_and_knows_what_was_used_in_which_block() -> None:
    async with facilitating() as facilitator:
        start = int(await call(facilitator, "eth_blockNumber"), 16)
        await facilitator.said("/settle", body_2(PAYER.signed(nonce=1)))
        facilitator.clock[0] = NOW + 5
        await facilitator.said("/settle", body_2(PAYER.signed(nonce=2)))
        facilitator.clock[0] = NOW + 1000
        times = {
            tag: int((await call(facilitator, "eth_getBlockByNumber", tag, False))["timestamp"], 16)
            for tag in ("latest", hex(start + 1), hex(start + 2))
        }
        assert times == {"latest": NOW + 1000, hex(start + 1): NOW, hex(start + 2): NOW + 1000}
        assert (await call(facilitator, "eth_getBlockByNumber", hex(start + 3), False)) is None
        data = f"0x{fake_chain_node.AUTHORIZATION_STATE}{word(PAYER.address)}{2:064x}"
        for block, is_used in ((start + 1, 0), (start + 2, 1)):
            found = await call(facilitator, "eth_call", {"to": USDC.address, "data": data}, hex(block))
            assert int(found, 16) == is_used
        asked = {"to": USDC.address, "data": f"0x{fake_chain_node.BALANCE_OF}{word(PAYER.address)}"}
        refused = await call(facilitator, "eth_call", asked, hex(start + 1))
        assert refused["code"] == fake_chain_node.NO_HISTORY


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", fake_chain_node.PARSE_ERROR),
        (b"[" * 20_000, fake_chain_node.PARSE_ERROR),
        (b"[]", fake_chain_node.INVALID_REQUEST),
        ({"id": {}, "method": "eth_chainId"}, fake_chain_node.INVALID_REQUEST),
        ({"id": 1}, fake_chain_node.UNKNOWN_METHOD),
        ({"id": 1, "method": "eth_sendRawTransaction", "params": []}, fake_chain_node.UNKNOWN_METHOD),
        ({"id": 1, "method": "eth_call", "params": {}}, fake_chain_node.INVALID_PARAMS),
        ({"id": 1, "method": "eth_call", "params": []}, fake_chain_node.INVALID_PARAMS),
        ({"id": 1, "method": "eth_call", "params": [{"to": USDC.address}]}, fake_chain_node.INVALID_PARAMS),
        (
            {"id": 1, "method": "eth_call", "params": [{"to": USDC.address, "data": "0x"}]},
            fake_chain_node.REVERTED,
        ),
        (
            {"id": 1, "method": "eth_call", "params": [{"to": USDC.address, "data": "0x70a08231"}]},
            fake_chain_node.REVERTED,
        ),
        ({"id": 1, "method": "eth_getTransactionReceipt", "params": ["0x1"]}, fake_chain_node.INVALID_PARAMS),
        (
            {"id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x01"}]},
            fake_chain_node.INVALID_PARAMS,
        ),
        ({"id": 1, "method": "eth_getLogs", "params": [{"fromBlock": 1}]}, fake_chain_node.INVALID_PARAMS),
        ({"id": 1, "method": "eth_getLogs", "params": [{"topics": [[1]]}]}, fake_chain_node.INVALID_PARAMS),
        ({"id": 1, "method": "eth_getLogs", "params": [{"topics": "0x"}]}, fake_chain_node.INVALID_PARAMS),
    ],
)
async def test_a_call_that_makes_no_sense_is_a_json_rpc_error(body: object, code: int) -> None:
    async with facilitating() as facilitator:
        answer = await facilitator.said("/rpc", body)
        assert answer["error"]["code"] == code
        assert "result" not in answer


async def test_where_there_is_no_contract_a_call_returns_nothing() -> None:
    real = usual_asset("eip155:8453")
    assert real is not None
    async with facilitating() as facilitator:
        asked = {"to": real.address, "data": f"0x{fake_chain_node.BALANCE_OF}{word(PAY_TO)}"}
        assert await call(facilitator, "eth_call", asked, "latest") == "0x"


async def test_more_logs_than_a_node_gives_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_chain_node, "MOST_LOGS", 3)
    async with facilitating() as facilitator:
        for nonce in (1, 2):
            await facilitator.said("/settle", body_2(PAYER.signed(nonce=nonce), requirements()))
        refused = await call(facilitator, "eth_getLogs", {"fromBlock": "earliest"})
        assert refused["code"] == fake_chain_node.LIMIT_EXCEEDED
