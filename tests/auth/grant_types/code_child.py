"""A server that dies after the commit of a redemption and before its answer. Run by test_parallel_codes.py."""

from __future__ import annotations

import os
import sys

import trio

from auth.identity import found
from auth.tokens import access_tokens as tokens
from tests.auth.code_fakes import CALLBACK, VERIFIER
from tests.auth.identity_fakes import POLICY, SITE, Clock, post, seeds, subkey
from tests.engine_under_test import Place, open_at, read_place


async def main(place: Place, client_id: str, code: str) -> None:
    def die(*args: object, **kwargs: object) -> None:
        os._exit(9)

    tokens.answer = die  # pyright: ignore[reportAttributeAccessIssue]
    clock = Clock()
    async with open_at(place, clock=clock) as store:
        identity = await found(
            store, clock=clock, entropy=seeds(5_000_000), subkey=subkey, site=SITE, policy=POLICY
        )
        await identity.handle(
            post(
                "/token",
                grant_type="authorization_code",
                client_id=client_id,
                code=code,
                code_verifier=VERIFIER,
                redirect_uri=CALLBACK,
            )
        )


if __name__ == "__main__":
    trio.run(main, read_place(sys.argv[1]), sys.argv[2], sys.argv[3])
