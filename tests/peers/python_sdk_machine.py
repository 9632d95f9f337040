"""The official Python SDK as a machine: logs in by itself (client_credentials), with a secret or with a signature, and lists the tools.

usage: python python_sdk_machine.py URL ISSUER CLIENT_ID secret|key < the secret, or the private key in PEM
Prints one JSON object: the tools' names.
"""

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.streamable_http import streamable_http_client


class Memory:
    """Where the SDK keeps what it got."""

    tokens: Any = None
    info: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.info

    async def set_client_info(self, info: Any) -> None:
        self.info = info


def provider(url: str, issuer: str, client_id: str, kind: str, credential: str) -> httpx2.Auth:
    if kind == "secret":
        return ClientCredentialsOAuthProvider(url, Memory(), client_id, credential, issuer=issuer)
    signed = SignedJWTParameters(
        issuer=client_id, subject=client_id, signing_algorithm="ES256", signing_key=credential
    )
    return PrivateKeyJWTOAuthProvider(
        url, Memory(), client_id, signed.create_assertion_provider(), issuer=issuer
    )


async def main(url: str, issuer: str, client_id: str, kind: str) -> None:
    auth = provider(url, issuer, client_id, kind, sys.stdin.read())
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        tools = await client.list_tools()
    print(json.dumps({"tools": [tool.name for tool in tools.tools]}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
