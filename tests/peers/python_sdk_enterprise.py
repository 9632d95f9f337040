"""The official Python SDK with a company's word for a person (enterprise-managed authorization). What the SDK leaves to its user, the
exchange of an id token for an assertion at the provider, is one request here.

usage: ID_TOKEN=… CLIENT_SECRET=… python python_sdk_enterprise.py URL ISSUER CLIENT_ID PROVIDER CLIENT_ID_THERE
Prints one JSON object: the text that came back, what was asked at the provider, and what was granted.
"""

import asyncio
import json
import os
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client


class Memory:
    """Where the SDK keeps what it got."""

    tokens: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return None

    async def set_client_info(self, info: Any) -> None:
        raise NotImplementedError


async def main(url: str, issuer: str, client_id: str, provider: str, client_id_there: str) -> None:
    asked: list[dict[str, str]] = []
    memory = Memory()

    async def assertion(audience: str, resource: str) -> str:
        asked.append({"audience": audience, "resource": resource})
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token": os.environ["ID_TOKEN"],
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": audience,
            "resource": resource,
            "client_id": client_id_there,
        }
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.post(f"{provider}/token", data=form)
        return answer.json()["access_token"]

    auth = IdentityAssertionOAuthProvider(
        url, memory, client_id, os.environ["CLIENT_SECRET"], issuer, assertion, scope="mcp:tools"
    )
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        result = await client.call_tool("echo", {"text": "vouched for"})
    print(
        json.dumps(
            {
                "text": result.content[0].text,
                "asked": asked,
                "scope": memory.tokens.scope,
                "refreshes": memory.tokens.refresh_token is not None,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
