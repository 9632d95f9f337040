"""The queue for passphrase hashes: bounded, known people first, and nothing is lost in it."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from auth.context.identity_parts import HashingBusy
from auth.values.limits_and_lifetimes import FormLimits, Policy
from server.run.hash_queue import HASHES_AT_ONCE, WAITING, HashQueue
from tests.auth.browser_fakes import PASSPHRASE, Browser, House, header
from tests.auth.identity_fakes import MINUTE

HELD = HASHES_AT_ONCE + WAITING


class Slow:
    """Hashing that takes until it is let go, one at a time or for good."""

    def __init__(self, house: House) -> None:
        self.tried: list[str] = []
        self._go = trio.Semaphore(0)
        self._verify = house.parts.hashing.verify_passphrase
        hashing = replace(house.parts.hashing, verify_passphrase=self, place=HashQueue())
        house.parts = replace(house.parts, hashing=hashing)

    async def __call__(self, passphrase: str, phc: str) -> bool:
        self.tried.append(passphrase)
        await self._go.acquire()
        return await self._verify(passphrase, phc)

    def let_go(self, number: int) -> None:
        for _ in range(number):
            self._go.release()


async def stranger(house: House, place: int) -> Browser:
    browser = Browser(house, ip=f"198.51.{place}.1")
    await browser.get("/signin")
    return browser


async def test_a_crowd_of_strangers_is_sent_away_and_a_known_browser_is_next() -> None:
    house = House().owned()
    known = Browser(house)
    await known.sign_in()
    await known.submit("/signout")
    slow, crowd = Slow(house), [await stranger(house, place) for place in range(HELD + 15)]
    counted = len(house.rows("attempts"))
    await known.get("/signin")

    async def guess(browser: Browser, place: int) -> None:
        await browser.submit("/signin", name=f"name{place}", passphrase=f"a guess of {place} or so")

    async def come_back() -> None:
        await known.submit("/signin", name="alice", passphrase=PASSPHRASE)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for place, browser in enumerate(crowd):
                nursery.start_soon(guess, browser, place)
            await trio.testing.wait_all_tasks_blocked()
            assert len(slow.tried) == HASHES_AT_ONCE
            away = [browser for browser in crowd if browser.page.status == 429]
            assert len(away) == 15
            assert {header(browser.page, "retry-after") for browser in away} == {"5"}
            # Whoever is sent away had no try, and none is missing to the account or the network.
            assert len(house.rows("attempts")) - counted == 3 * HELD
            nursery.start_soon(come_back)
            await trio.testing.wait_all_tasks_blocked()
            slow.let_go(1)
            await trio.testing.wait_all_tasks_blocked()
            assert slow.tried[-1] == PASSPHRASE
            slow.let_go(HELD)
    assert known.page.status == 200
    assert len(slow.tried) == HELD + 1
    assert [browser.page.status for browser in crowd].count(400) == HELD


async def test_a_place_is_given_back_however_it_ends() -> None:
    queue = HashQueue(at_once=1, waiting=1)
    with queue(first=False) as working:
        await working.turn()
        with trio.CancelScope() as leaving, queue(first=False) as waiting:
            with pytest.raises(HashingBusy):
                queue(first=False).__enter__()
            leaving.cancel()
            await waiting.turn()
        with queue(first=False):
            pass  # it needed no hash after all
        with queue(first=True):
            pass
    with trio.fail_after(60):
        for _ in range(3):
            with queue(first=False) as place:
                await place.turn()
                await place.turn()  # two hashes in one turn


async def test_a_turn_that_comes_while_somebody_leaves_goes_to_the_next() -> None:
    queue, order = HashQueue(at_once=1, waiting=5), list[str]()

    async def wait(name: str, *, first: bool, scope: trio.CancelScope) -> None:
        with scope, queue(first=first) as place:
            await place.turn()
            order.append(name)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            leaving = trio.CancelScope()
            with queue(first=False) as working:
                await working.turn()
                for name, first, scope in (
                    ("second", False, trio.CancelScope()),
                    ("gone", True, leaving),
                    ("first", True, trio.CancelScope()),
                ):
                    nursery.start_soon(lambda n=name, f=first, s=scope: wait(n, first=f, scope=s))
                    await trio.testing.wait_all_tasks_blocked()
            leaving.cancel()  # it has its turn already, and has not noticed yet
    assert order in (["first", "second"], ["gone", "first", "second"])
    with queue(first=False) as place:
        await place.turn()


async def test_all_networks_together_guess_so_often_a_minute_and_no_known_browser_is_kept_out() -> None:
    house = House(policy=Policy(limits=FormLimits(guesses_per_minute=25))).owned()
    known = Browser(house)
    await known.sign_in()
    await known.submit("/signout")
    house.time += MINUTE
    one = Browser(house, ip="198.51.100.9")
    statuses = [(await one.sign_in(f"name{place}", "x" * 12)).status for place in range(30)]
    assert statuses == [400] * 20 + [429] * 10  # its own limits close it, and it uses up nobody else's
    statuses = [
        (await (await stranger(house, place)).sign_in(f"name{place}", "x" * 12)).status for place in range(8)
    ]
    assert statuses == [400] * 5 + [429] * 3
    # The account's own name, from nowhere known: no other answer, or it would tell who has an account.
    assert (await (await stranger(house, 77)).sign_in("alice", "x" * 12)).status == 429
    assert (await known.sign_in()).status == 200
    house.time += MINUTE
    assert (await (await stranger(house, 78)).sign_in()).status == 200
