"""Approvals that the policy forbids."""

from __future__ import annotations

from msgspec.structs import replace

from auth.values.limits_and_lifetimes import DevicePolicy
from tests.auth.browser_fakes import ELSEWHERE, Browser, House


async def test_an_approval_that_the_policy_forbids_is_written_down() -> None:
    house = House().owned()
    policy = replace(house.parts.policy, device=DevicePolicy(approve_from="same-network"))
    house.parts = replace(house.parts, policy=policy)
    browser = Browser(house)
    await browser.sign_in()
    await browser.look_at(house.ask(ip=ELSEWHERE))
    assert (await browser.submit("/device/decide#approve")).status == 403
    assert house.audited("device.approved") == ["refused"]
    assert house.rows("audit")[-1]["reason"].endswith("not from here")
