"""What the id of a session says, to whom, and for how long."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from server.calls.sessions.session_ids import LIFETIME_DAYS, SessionIds
from server.mcp.call_questions import ABILITIES, Ability
from server.mcp.versions import REVISIONS

NOW = 1_800_000_000_000
DAY = 86_400_000
HANDSHAKE_ERA = [row for row in REVISIONS.values() if not row.modern]


def ids(key: bytes = bytes(32), server: str = "main", clock: Callable[[], int] = lambda: NOW) -> SessionIds:
    return SessionIds(key, server, clock=clock, entropy=secrets.token_bytes)


def an_id(caller: str = "user:alice:c1") -> str:
    return ids().make(caller, HANDSHAKE_ERA[0], frozenset())


@pytest.mark.requirement("session.given")
def test_an_id_is_short_fit_for_a_header_and_never_the_same_whoever_it_is_for() -> None:
    made = [an_id(caller) for caller in ("a", "user:" + "x" * 5000, "user:zoë") for _ in range(50)]
    assert len(set(made)) == 150
    assert {len(one) for one in made} == {51}
    assert all(one.isascii() and one.isprintable() and " " not in one for one in made)


@pytest.mark.parametrize("revision", HANDSHAKE_ERA, ids=lambda row: row.version)
@pytest.mark.parametrize("can", [*((ability,) for ability in ABILITIES), ABILITIES, ()])
def test_it_says_what_was_agreed(revision: object, can: tuple[Ability, ...]) -> None:
    (row,) = (each for each in HANDSHAKE_ERA if each is revision)
    agreed = ids().read(ids().make("caller", row, can), "caller")
    assert agreed is not None
    assert (agreed.revision, agreed.can) == (row, frozenset(can))
    assert agreed.expires_at == NOW + LIFETIME_DAYS * DAY


def test_it_opens_for_its_caller_at_its_server_under_its_key_and_for_nobody_else() -> None:
    made = an_id()
    assert ids().read(made, "user:alice:c1") is not None
    assert ids().read(made, "user:bob:c1") is None
    assert ids(server="other").read(made, "user:alice:c1") is None
    assert ids(key=b"k" * 32).read(made, "user:alice:c1") is None
    # What a server and a caller are called cannot be shifted from one to the other.
    shifted = ids(server="a").make('b","c', HANDSHAKE_ERA[0], ())
    assert ids(server='a","b').read(shifted, "c") is None


def test_every_character_counts() -> None:
    made = an_id()
    for place in range(len(made)):
        for other in "Ax9-":
            changed = made[:place] + other + made[place + 1 :]
            assert (ids().read(changed, "user:alice:c1") is None) == (changed != made)


@pytest.mark.parametrize("junk", ["", "x", "é" * 51, "A" * 51, "A" * 52, "=" * 51, "\n" * 51, "A" * 100_000])
def test_junk_is_no_id(junk: str) -> None:
    assert ids().read(junk, "user:alice:c1") is None


def test_an_id_opens_for_a_while_and_then_no_more() -> None:
    made = an_id()
    last = NOW + LIFETIME_DAYS * DAY
    assert ids(clock=lambda: last - 1).read(made, "user:alice:c1") is not None
    assert ids(clock=lambda: last).read(made, "user:alice:c1") is None
    assert ids(clock=lambda: NOW - DAY).read(made, "user:alice:c1") is not None, "a clock was set back"


def test_ids_of_earlier_builds_are_still_read() -> None:
    """A change of the format needs a number of its own."""
    made = "AW5ubm5ubm5ubm5ubsGGH41xJACfyPa4K075w8GuMQh9jL-IfPs"
    fixed = SessionIds(bytes(32), "main", clock=lambda: NOW, entropy=lambda count: b"n" * count)
    again = fixed.make("caller", REVISIONS["2025-11-25"], ABILITIES)
    assert again == made
    agreed = ids().read(made, "caller")
    assert agreed is not None and agreed.revision.version == "2025-11-25" and agreed.can == set(ABILITIES)
