"""What is remembered of those who post forms (auth/posted.py): short, whatever they send."""

from __future__ import annotations

from auth.values.site import Site
from tests.auth.identity_fakes import open_identity, post
from tests.auth.registration_fakes import sent

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
