from __future__ import annotations

import pytest

from server.lib.oauth_client.challenge import Challenge, read_challenge


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            ['Bearer resource_metadata="https://a.example/x", scope="mcp tools"'],
            Challenge(resource_metadata="https://a.example/x", scope="mcp tools"),
        ),
        (
            ['bearer error="insufficient_scope",scope=mcp , error_description="say \\"please\\""'],
            Challenge(error="insufficient_scope", scope="mcp", description='say "please"'),
        ),
        (
            ['Basic realm="x", Bearer realm="y", scope="mcp", Digest realm="z", scope="no"'],
            Challenge(scope="mcp"),
        ),
        (['Basic realm="x"', 'Bearer scope="mcp"'], Challenge(scope="mcp")),
        (["Bearer"], Challenge()),
        (['Bearer scope="a", scope="b"'], Challenge(scope="a")),
        (['Basic realm="x, Bearer scope=\\"fake\\""'], None),
        (["Negotiate abc==, Bearer scope=mcp"], Challenge(scope="mcp")),
        ([], None),
        ([""], None),
    ],
)
def test_the_bearer_challenge_is_found_among_others(headers: list[str], expected: Challenge | None) -> None:
    assert read_challenge(headers) == expected


def test_a_hostile_header_is_read_in_bounded_time() -> None:
    assert read_challenge(['Bearer x="' + "\\" * 1_000_000]) is not None
    assert read_challenge(["," * 1_000_000]) is None
