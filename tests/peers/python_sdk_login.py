"""The official Python SDK logging in by itself: it finds the authorization server, registers, sends a browser, and calls a tool.

usage: python python_sdk_login.py URL MODE       MODE: auto or legacy
Prints {"open": URL} where a program would open a browser, and {"answer": …} at its end.
"""

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl


class Kept:
    """Storage, as the SDK wants it."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def main(url: str, mode: str) -> None:
    arrived: asyncio.Queue[httpx2.URL] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        while (await reader.readline()).strip():
            continue
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone")
        await writer.drain()
        writer.close()
        arrived.put_nowait(httpx2.URL(line.split(" ")[1]))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    redirect = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/callback"

    async def open_browser(address: str) -> None:
        say({"open": address})

    async def wait_for_browser() -> AuthorizationCodeResult:
        back = (await arrived.get()).params
        return AuthorizationCodeResult(code=back["code"], state=back.get("state"), iss=back.get("iss"))

    kept = Kept()
    auth = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(client_name="Python SDK", redirect_uris=[AnyUrl(redirect)]),
        storage=kept,
        redirect_handler=open_browser,
        callback_handler=wait_for_browser,
    )
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        result = await client.call_tool("echo", {"text": "in by myself"})
        text = [block.text for block in result.content if block.type == "text"]
    listener.close()
    assert kept.client is not None
    assert kept.tokens is not None
    say(
        {
            "answer": {
                "text": text,
                "scope": kept.tokens.scope,
                "refreshes": kept.tokens.refresh_token is not None,
                "method": kept.client.token_endpoint_auth_method,
            }
        }
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
