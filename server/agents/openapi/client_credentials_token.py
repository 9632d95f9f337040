"""Asking a token endpoint for an access token of our own (RFC 6749 §4.4, client credentials)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote_plus, urlencode

import msgspec
import trio

from server.agents.base.backend import BackendError
from server.agents.openapi.openapi_settings import ClientGrant
from server.lib.http_client.failures import DeadlinePassed, FetchFailed
from server.lib.http_client.fetch import Fetcher
from server.settings.secret_reference import Secret

SECONDS: Final = 10.0
ANSWER_BYTES: Final = 64 * 1024


async def ask_token(grant: ClientGrant, secret: Secret) -> Mapping[str, Any]:
    """The answer of the token endpoint. Raises `BackendError`, which holds nothing that it said: it knows the secret."""
    pair = f"{quote_plus(grant.client_id)}:{quote_plus(secret.reveal())}"
    form = {"grant_type": "client_credentials", **({"scope": grant.scope} if grant.scope else {})}
    fetcher = Fetcher(grant.token_url, connections=1)
    try:
        async with fetcher.send(
            "POST",
            urlencode(form).encode("ascii"),
            headers=(
                ("Accept", "application/json"),
                ("Content-Type", "application/x-www-form-urlencoded"),
                ("Authorization", f"Basic {b64encode(pair.encode()).decode('ascii')}"),
            ),
            deadline=trio.current_time() + SECONDS,
            limit=ANSWER_BYTES,
        ) as answer:
            if answer.status != 200:
                raise BackendError(f"the API's token endpoint answered {answer.status}")
            found: object = msgspec.json.decode(await answer.read())
    except DeadlinePassed:
        raise BackendError(f"the API's token endpoint did not answer within {SECONDS:g} s") from None
    except FetchFailed as problem:
        raise BackendError(f"the API's token endpoint {problem}") from problem
    except msgspec.DecodeError:
        raise BackendError("the API's token endpoint did not answer in JSON") from None
    finally:
        await fetcher.aclose()
    if not isinstance(found, dict):
        raise BackendError("the API's token endpoint did not answer with an object")
    return cast("dict[str, Any]", found)
