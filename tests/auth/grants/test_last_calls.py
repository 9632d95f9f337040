"""When a login last called (auth/grants/last_calls.py): a call counts, a refresh does not, and time never goes back."""

from __future__ import annotations

from functools import partial

from auth.grants import last_calls
from auth.grants import login_records as grants
from tests.auth.browser_fakes import House
from tests.auth.people_fakes import let_in


def last_call(house: House, grant_id: str) -> int | None:
    found = {each.grant.id: each.grant.called_at for each in grants.sessions(house.store.db, house.time)}
    return found[grant_id]


def test_a_login_that_was_given_tokens_has_not_called_yet_and_its_last_call_never_goes_back() -> None:
    house = House().owned()
    used, unused = let_in(house, house.owner_id), let_in(house, house.owner_id)
    assert last_call(house, used) is None
    for at in (house.time + 60_000, house.time + 1_000):
        house.store.now(partial(last_calls.note, called={used: at, "grt_unknown": at}))
    assert last_call(house, used) == house.time + 60_000
    assert last_call(house, unused) is None
