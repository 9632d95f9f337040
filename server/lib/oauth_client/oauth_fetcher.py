"""Exchanges with the authorization servers that settings name, on trio: one at a time each, bounded in size and time.

Their addresses are the configuration's or come from a configured issuer's own document, so private ones are fine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from server.lib.oauth_client.oauth_answers import OAuthAnswer, OAuthFailure

ANSWER_BYTES: Final = 256 * 1024  # some providers publish a dozen keys with their certificates
SECONDS: Final = 10.0  # somebody looks at a blank page meanwhile
AT_ONCE: Final = 8


class OAuthFetcher:
    """An `Ask`. Exchanges are rare: no connection is kept for the next."""

    def __init__(self) -> None:
        self._slots = trio.CapacityLimiter(AT_ONCE)

    async def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> OAuthAnswer:
        # Megabytes and tenths of a second that a server without providers never spends.
        from server.lib.http_client.failures import DeadlinePassed, FetchFailed
        from server.lib.http_client.fetch import Fetcher

        deadline = trio.current_time() + SECONDS
        try:
            with trio.fail_at(deadline):
                async with self._slots:
                    fetcher = Fetcher(url, connections=1)
                    try:
                        async with fetcher.send(
                            method,
                            body,
                            headers=tuple(headers.items()),
                            deadline=deadline,
                            limit=ANSWER_BYTES,
                        ) as answer:
                            return OAuthAnswer(status=answer.status, body=await answer.read())
                    finally:
                        await fetcher.aclose()
        except (DeadlinePassed, trio.TooSlowError):
            raise OAuthFailure("does not answer in time") from None
        except FetchFailed as problem:
            raise OAuthFailure(str(problem)) from problem
        except ValueError:
            raise OAuthFailure("has an address that cannot be used") from None
