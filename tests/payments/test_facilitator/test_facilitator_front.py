"""Who is answered, what the facilitator says of itself, and what it remembers after a restart."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from server.payments.test_facilitator.coins import Coins
from server.payments.test_facilitator.state_file import StateFile, StateUnusable
from tests.payments.test_facilitator.payer import EACH, PAY_TO, USDC, Payer, body_2, facilitating, place

PAYER = Payer()
USED = "invalid_exact_evm_nonce_already_used"


async def test_it_supports_exact_in_both_versions_and_no_real_network() -> None:
    async with facilitating("base-sepolia", "avalanche-fuji") as facilitator:
        supported = await facilitator.said("/supported")
        assert supported["kinds"] == [
            {"x402Version": 2, "scheme": "exact", "network": "eip155:84532"},
            {"x402Version": 1, "scheme": "exact", "network": "base-sepolia"},
            {"x402Version": 2, "scheme": "exact", "network": "eip155:43113"},
            {"x402Version": 1, "scheme": "exact", "network": "avalanche-fuji"},
        ]
        assert supported["extensions"] == []
        assert list(supported["signers"]) == ["eip155:*"]


async def test_it_says_what_it_is_and_that_its_coins_are_worthless() -> None:
    async with facilitating() as facilitator:
        about = await facilitator.said("/")
        assert "worthless" in about["warning"]
        assert about["networks"][0]["asset"] == USDC.address
        assert about["paths"]["/settle"] == ["POST"]
        async with await facilitator.server.connect() as peer:
            head = await peer.ask(facilitator.request("/supported", method="HEAD"))
            assert (head.status, head.body) == (200, b"")


async def test_other_paths_and_methods_are_none() -> None:
    async with facilitating() as facilitator:
        assert (await facilitator.ask("/nothing")).status == 404
        refused = await facilitator.ask("/settle")
        assert (refused.status, refused.headers["allow"]) == (405, "POST")
        assert (await facilitator.ask("/supported", {})).status == 405


@pytest.mark.parametrize("name", ["base", "polygon", "avalanche"])
def test_there_are_no_coins_on_a_real_network(name: str) -> None:
    with pytest.raises(ValueError, match="real network"):
        Coins([place(name)], EACH)


@pytest.mark.parametrize("path", ["/", "/supported", "/test/ledger"])
@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}],
    ids=["another name", "a page of another site", "a page of nobody"],
)
async def test_pages_that_a_browser_shows_are_kept_out(path: str, headers: dict[str, str]) -> None:
    async with facilitating() as facilitator:
        answer = await facilitator.ask(path, **headers)
        assert answer.status == 403
        assert b"0x" not in answer.body


async def test_told_to_listen_to_a_network_it_answers_by_any_name_but_its_switches_only_here() -> None:
    async with facilitating(host="0.0.0.0") as facilitator:
        assert (await facilitator.ask("/supported", host="facilitator:8402")).status == 200
        for path in ("/test/ledger", "/test/switch"):
            assert (await facilitator.ask(path, host="facilitator:8402")).status == 403
            assert (await facilitator.ask(path)).status == 200


async def test_a_drain_ends_those_that_are_slow_late_or_hang_at_once() -> None:
    async with facilitating() as facilitator, AsyncExitStack() as peers:
        seen = facilitator.desk.coins.authorizations
        for number, mode in enumerate(("slow:3600", "hang", "late:3600"), 1):
            await facilitator.switch(settle=mode, times=1)
            peer = await peers.enter_async_context(await facilitator.server.connect())
            await peer.send(facilitator.request("/settle", body_2(PAYER.signed(nonce=number))))
            while len(seen()) < number:
                await facilitator.ledger()
        facilitator.server.draining.set()
        with trio.fail_after(60):
            await facilitator.server.ended.wait()


# ── after a restart ──────────────────────────────────────────────────────────────────────────────────────────────────


def restarted(file: StateFile) -> Coins:
    with file.held() as state:
        return Coins([place()], EACH, state)


async def test_what_was_answered_is_in_the_file_before_it_is_answered(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "coins")
    async with facilitating(file=file) as facilitator:
        settled = await facilitator.said("/settle", body_2(PAYER.signed()))
        await facilitator.said("/test/coins", {"address": PAY_TO, "amount": "$3"})
        block = facilitator.desk.coins.block
        coins = restarted(StateFile(file.path))
    assert (coins.balance(USDC, PAYER.address), coins.balance(USDC, PAY_TO)) == (EACH - 10_000, 3_000_000)
    assert coins.block == block
    async with facilitating(file=StateFile(file.path), coins=coins) as facilitator:
        again = await facilitator.said("/settle", body_2(PAYER.signed()))
        assert (again["success"], again["errorReason"]) == (False, USED)
        (entry,) = (await facilitator.ledger())["authorizations"]
        assert (entry["settle_calls"], entry["transaction"]) == (2, settled["transaction"])
        found = coins.by_transaction(settled["transaction"])
        assert found is not None
        assert found.settled


async def test_twenty_that_settle_at_once_are_all_in_the_file(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "coins")
    async with facilitating(file=file) as facilitator, trio.open_nursery() as nursery:
        for nonce in range(20):
            nursery.start_soon(facilitator.said, "/settle", body_2(PAYER.signed(nonce=nonce)))
    assert restarted(StateFile(file.path)).balance(USDC, PAY_TO) == EACH + 200_000


async def test_where_the_file_cannot_be_written_nobody_is_told_of_a_success(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    file = StateFile(tmp_path / "room" / "coins")
    async with facilitating(file=file) as facilitator:
        await facilitator.said("/settle", body_2(PAYER.signed(nonce=1)))
        before = file.path.read_bytes()
        file.path.with_name("coins.partial").mkdir()
        assert (await facilitator.ask("/settle", body_2(PAYER.signed(nonce=2)))).status == 500
        given = await facilitator.ask("/test/coins", {"address": Payer().address, "amount": "$1"})
        assert given.status == 500
        assert file.path.read_bytes() == before
        assert "facilitator.not_saved" in facilitator.events()
        file.path.with_name("coins.partial").rmdir()
        assert (await facilitator.said("/settle", body_2(PAYER.signed(nonce=2))))["errorReason"] == USED
    assert restarted(StateFile(file.path)).balance(USDC, PAY_TO) == EACH + 20_000


def test_a_half_written_file_beside_it_is_in_nobodys_way(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "coins")
    file.path.with_name("coins.partial").write_bytes(b'{"format":')

    async def save() -> None:
        coins = Coins([place()], EACH)
        coins.put(USDC, PAY_TO, 5)
        await file.save(coins)

    trio.run(save)
    assert restarted(StateFile(file.path)).balance(USDC, PAY_TO) == 5
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"balances": {"one": "1"}}',
        b'{"balances": {"a b c": "much"}}',
        b'{"authorizations": [{}]}',
        json.dumps({"format": 2}).encode(),
    ],
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    file = StateFile(tmp_path / "coins")
    file.path.write_bytes(content)
    with pytest.raises(StateUnusable), file.held():
        pass
    assert file.path.read_bytes() == content


def test_two_facilitators_do_not_share_a_file(tmp_path: Path) -> None:
    one, other = StateFile(tmp_path / "coins"), StateFile(tmp_path / "coins")
    with one.held(), pytest.raises(StateUnusable, match="in use by another"), other.held():
        pass
    with StateFile(tmp_path / "coins").held() as state:
        assert state.balances == {}
