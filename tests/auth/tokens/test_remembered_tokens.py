"""How long it is remembered what an access token says."""

from __future__ import annotations

from auth.tokens import access_token_verifier
from auth.tokens.access_token_verifier import REMEMBERED, REMEMBERED_MS
from auth.tokens.presented_credentials import present
from auth.values.identity_model import Principal
from tests.auth.identity_fakes import ORIGIN, SECOND, Clock, logged_in, open_identity


async def test_a_token_is_read_again_after_a_minute() -> None:
    """What a token says is read once a minute at most; whether its login is live, at every request."""
    assert (REMEMBERED, REMEMBERED_MS) == (10_000, 60 * SECOND)
    clock, reads = Clock(), list[str]()
    async with open_identity(clock=clock) as identity:
        bearer = f"Bearer {(await logged_in(identity))['access_token']}"
        real = access_token_verifier.is_signed

        def counted(token: str, *rest: object) -> bool:
            reads.append(token)
            return real(token, *rest)  # type: ignore[arg-type]

        access_token_verifier.is_signed = counted  # type: ignore[assignment]
        try:
            for later, expected in ((0, 1), (59, 1), (1, 2), (59, 2), (1, 3)):
                clock.now += later * SECOND
                answer = await identity.check(present(bearer, server="agent", origin=ORIGIN))
                assert isinstance(answer, Principal)
                assert len(reads) == expected
        finally:
            access_token_verifier.is_signed = real
