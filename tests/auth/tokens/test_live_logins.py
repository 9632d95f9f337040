"""The cache of live logins never serves what was revoked, whatever overtakes what."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import trio
import trio.testing

from auth.clients.client_registry import believed_names
from auth.tokens.live_logins import ATTEMPTS, LiveGrant, LiveLogins
from auth.values.database import ChangedWhileRead


@dataclass
class Changed:
    kind: str
    entity_id: str


def login(grant_id: str = "grt_1", *, usable: bool = True, subject: str = "usr_1") -> LiveGrant:
    return LiveGrant(
        grant_id=grant_id,
        kind="user",
        subject=subject,
        client_id="cli_1",
        server="agent",
        usable=usable,
        ends_at=1,
        ceiling=frozenset({"mcp"}),
    )


class SlowStore:
    """Reads what is true when the read begins, and hands it over when told to."""

    def __init__(self) -> None:
        self.truth: dict[str, LiveGrant] = {"grt_1": login()}
        self.reads = 0
        self.gate = trio.Event()
        self.gate.set()

    async def __call__(self, grant_id: str) -> LiveGrant | None:
        self.reads += 1
        found = self.truth.get(grant_id)
        await self.gate.wait()
        await trio.lowlevel.checkpoint()
        return found


async def test_a_login_is_read_once_and_then_remembered() -> None:
    store = SlowStore()
    live = LiveLogins(store)
    assert live.get("grt_1") is None
    assert await live.load("grt_1") == login()
    assert live.get("grt_1") == login()
    assert store.reads == 1


@pytest.mark.parametrize("change", [("grant", "grt_1"), ("user", "usr_1"), ("client", "cli_1")])
async def test_each_thing_a_login_hangs_on_makes_it_forgotten(change: tuple[str, str]) -> None:
    live = LiveLogins(SlowStore())
    await live.load("grt_1")
    live.apply_changes([Changed("grant", "grt_2"), Changed("user", "grt_1")])
    assert live.get("grt_1") is not None
    live.apply_changes([Changed(*change)])
    assert live.get("grt_1") is None


@pytest.mark.parametrize("change", [("grant", "grt_1"), ("user", "usr_1"), ("client", "cli_1")])
async def test_a_read_that_began_before_a_revocation_and_ends_after_it_is_done_again(
    change: tuple[str, str],
) -> None:
    store = SlowStore()
    live = LiveLogins(store)
    store.gate = trio.Event()
    found: list[LiveGrant | None] = []

    async def ask() -> None:
        found.append(await live.load("grt_1"))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            store.truth["grt_1"] = login(usable=False)
            live.apply_changes([Changed(*change)])
            store.gate.set()
    assert found == [login(usable=False)]
    assert live.get("grt_1") == login(usable=False)
    assert store.reads == 2


async def test_a_login_that_changes_faster_than_it_is_read_is_neither_let_in_nor_refused() -> None:
    live: LiveLogins

    async def load(grant_id: str) -> LiveGrant:
        live.apply_changes([Changed("grant", grant_id)])
        return login()

    live = LiveLogins(load)
    with pytest.raises(ChangedWhileRead):
        await live.load("grt_1")
    assert live.get("grt_1") is None
    assert ATTEMPTS == 5


async def test_an_unknown_login_is_not_remembered() -> None:
    store = SlowStore()
    live = LiveLogins(store)
    assert await live.load("grt_9") is None
    store.truth["grt_9"] = login("grt_9")
    assert await live.load("grt_9") == login("grt_9")


async def test_an_abandoned_read_leaves_nothing_behind() -> None:
    store = SlowStore()
    live = LiveLogins(store)
    store.gate = trio.Event()
    with trio.move_on_after(0):
        await live.load("grt_1")
    assert not live._readings


async def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    store = SlowStore()
    store.truth = {f"grt_{n}": login(f"grt_{n}", subject=f"usr_{n}") for n in range(5)}
    live = LiveLogins(store, entries=3)
    for grant_id in store.truth:
        await live.load(grant_id)
    assert len(live) == 3
    assert live.get("grt_0") is None
    live.apply_changes([Changed("user", f"usr_{n}") for n in range(5)])
    assert len(live) == 0
    assert not live._by_owner


DOCUMENT = "https://acme.example/oauth/assistant"


@pytest.mark.parametrize(
    ("kind", "client_id", "how", "names"),
    [
        ("registered", "nightly", {}, ("Acme", "nightly")),
        ("builtin", "ostiary-cli", {"by_device": True}, ("Acme", "ostiary-cli")),
        ("dynamic", "cli_1", {"public": False}, ()),
        ("document", DOCUMENT, {}, ("acme.example", DOCUMENT)),
        ("document", DOCUMENT, {"by_device": True}, ()),  # anybody can ask for a code in its name
        ("document", DOCUMENT, {"by_device": True, "public": False}, ("acme.example", DOCUMENT)),
    ],
)
def test_what_a_program_calls_itself_is_none_of_the_names_it_is_known_by(
    kind: str, client_id: str, how: dict[str, bool], names: tuple[str, ...]
) -> None:
    shown = {"by_device": False, "public": True, **how}
    assert believed_names(kind, client_id, "Acme", **shown) == names
