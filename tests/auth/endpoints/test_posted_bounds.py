"""What is remembered of those who post forms (auth/endpoints/posted_forms.py): short, whatever they send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from auth.identity import Identity
from auth.values.http_messages import WireRequest
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy
from tests.auth.identity_fakes import MINUTE, ORIGIN, Clock, logged_in, open_identity, post
from tests.auth.registration_fakes import SEEN, ask, sent

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})


FAR = "203.0.113.7"


async def test_what_is_counted_of_a_client_id_is_short_however_long_it_is() -> None:
    async with open_identity(site=PUBLIC) as identity:
        for number in range(5):
            await sent(
                identity, post("/token", client_id=f"{number}" * 2_048, grant_type="refresh_token", ip=FAR)
            )
        counts: dict[str, object] = vars(identity.parts.throttle)["_counts"]
        assert len(counts) >= 6
        assert max(map(len, counts)) < 100


# ---------------------------------------------------------------- on this machine

PAGE = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
BARE = {"sec-fetch-site": "cross-site"}  # of a request for which a browser sends no Origin
REFUSED = {"client_id": "ostiary-cli", "grant_type": "refresh_token", "refresh_token": "rt1.x"}


def by(request: WireRequest, **headers: str) -> WireRequest:
    """The same request as a browser sends it for somebody's page."""
    return replace(request, headers={**request.headers, **headers})


async def statuses(identity: Identity, requests: Iterable[WireRequest]) -> Counter[int]:
    return Counter([(await sent(identity, request)).status for request in requests])


async def test_a_web_page_uses_up_no_device_codes_of_the_persons_own_terminal() -> None:
    async with open_identity() as identity:
        asked = post("/device_authorization", client_id="ostiary-cli")
        # Whatever they say of themselves: there is one budget for all pages.
        pages = (PAGE, BARE, {"origin": "null"}, {"origin": "http://127.0.0.1:3000"})
        assert await statuses(identity, [by(asked, **page) for page in pages] * 3) == {200: 5, 429: 7}
        assert await statuses(identity, [asked] * 5) == {200: 5}


async def test_a_web_page_leaves_as_few_refusals_as_a_stranger_and_closes_nothing_to_programs_here() -> None:
    async with open_identity() as identity:
        refused = post("/token", **REFUSED)
        assert await statuses(identity, [by(refused, **PAGE)] * 40) == {400: 30, 429: 10}
        assert (await sent(identity, refused)).status == 400
        assert (await logged_in(identity))["access_token"]


async def test_a_web_page_registers_as_few_programs_as_a_stranger() -> None:
    async with open_identity() as identity:
        asked = ask("/register", SEEN["Codex"])
        assert await statuses(identity, [by(asked, **PAGE)] * 25) == {201: 20, 429: 5}
        assert (await sent(identity, asked)).status == 201


async def test_what_leaves_rows_is_bounded_for_programs_on_this_machine_too() -> None:
    policy, clock = Policy(), Clock()
    async with open_identity(clock=clock) as identity:
        refused, asked = post("/token", **REFUSED), ask("/register", SEEN["Codex"])
        most = policy.at_home.refused_per_minute_per_network
        assert await statuses(identity, [refused] * (most + 5)) == {400: most, 429: 5}
        clock.now += MINUTE
        most = policy.registration.per_network_at_home
        assert await statuses(identity, [asked] * (most + 5)) == {201: most, 429: 5}


async def test_what_leaves_no_row_is_not_counted_on_this_machine() -> None:
    async with open_identity() as identity:
        tokens = await logged_in(identity)
        refresh = post(
            "/token",
            client_id="ostiary-cli",
            grant_type="refresh_token",
            refresh_token=tokens["refresh_token"],
        )
        assert await statuses(identity, [refresh] * 700) == {200: 700}
        # A page that somehow had one is held to what a stranger may ask.
        assert await statuses(identity, [by(refresh, **PAGE)] * 130) == {200: 120, 429: 10}


async def test_our_own_origin_is_no_foreign_page() -> None:
    async with open_identity() as identity:
        refused = post("/token", **REFUSED)
        for headers in ({"origin": ORIGIN}, {"origin": ORIGIN, "sec-fetch-site": "same-origin"}):
            assert await statuses(identity, [by(refused, **headers)] * 40) == {400: 40}
