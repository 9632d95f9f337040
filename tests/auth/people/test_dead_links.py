"""Forms for one-time links that do not work (any more)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.auth.browser_fakes import PASSPHRASE, Browser, House
from tests.auth.people_fakes import invited, reset_path


@pytest.mark.parametrize(
    ("kind", "event"),
    [("claim", "owner.claimed"), ("invite", "user.joined"), ("reset", "user.passphrase_reset")],
)
async def test_a_form_for_a_link_that_does_not_work_costs_no_hash_and_leaves_a_row(
    kind: str, event: str
) -> None:
    house = House()
    path = {"claim": house.claim_path, "invite": partial(invited, house)}.get(kind, lambda: "")()
    if kind == "reset":
        path = reset_path(house.owned())
    browser = Browser(house)
    await browser.get(path)
    house.store.db.execute("DELETE FROM one_time_links")
    page = await browser.submit(path, name="eve", passphrase=PASSPHRASE, passphrase_again=PASSPHRASE)
    assert (page.status, house.hashed, house.audited(event)) == (410, 0, ["refused"])
