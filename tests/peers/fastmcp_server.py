"""FastMCP serving one `echo` tool over Streamable HTTP, stateless, as its documentation shows.

Run with the `fastmcp` environment; prints `Listening on URL` as our own server does, so the bench can start either. With an origin, a
certificate and its key it is that place over TLS, behind a login that says yes to everybody, or at the authorization server that is named
last, whose tokens it takes on sight.
"""

import socket
import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth.auth import AuthProvider, ClientRegistrationOptions, RemoteAuthProvider
from fastmcp.server.auth.providers.debug import DebugTokenVerifier
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from pydantic import AnyHttpUrl

SCOPE = "echo"
origin, chain, key, elsewhere = (*sys.argv[1:], None, None, None, None)[:4]


def door() -> AuthProvider | None:
    """Return what stands before the server."""
    if origin is None:
        return None
    if elsewhere is None:
        opened = ClientRegistrationOptions(enabled=True, valid_scopes=[SCOPE], default_scopes=[SCOPE])
        return InMemoryOAuthProvider(
            base_url=origin, client_registration_options=opened, required_scopes=[SCOPE]
        )
    return RemoteAuthProvider(
        token_verifier=DebugTokenVerifier(scopes=[SCOPE], required_scopes=[SCOPE]),
        authorization_servers=[AnyHttpUrl(elsewhere)],
        base_url=origin,
    )


server = FastMCP("echo", auth=door())


# Without an output schema it does what the others do: one text block.
@server.tool(output_schema=None)
def echo(text: str) -> str:
    """Say the same again."""
    return text


def main() -> None:
    app = server.http_app(json_response=True, stateless_http=True)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, ssl_certfile=chain, ssl_keyfile=key)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
