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
        from server.lib.http_client.failures import FetchFailed, NoTrust, Silent
        from server.lib.http_client.http_client import exchange_once

        try:
            with trio.fail_after(SECONDS):
                async with self._slots:
                    answer = await exchange_once(
                        method, url, headers=headers, body=body, limit=ANSWER_BYTES, seconds=SECONDS
                    )
        except (Silent, trio.TooSlowError):
            raise OAuthFailure("does not answer in time") from None
        except NoTrust as problem:  # its text is for whoever is at the machine
            raise OAuthFailure("cannot be asked: nothing here can judge its certificate") from problem
        except FetchFailed as problem:
            raise OAuthFailure(str(problem)) from problem
        return OAuthAnswer(status=answer.status, body=answer.body)
