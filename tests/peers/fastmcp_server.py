"""FastMCP serving one `echo` tool over Streamable HTTP, stateless, as its documentation shows.

Run with the `fastmcp` environment; prints `Listening on URL` as our own server does, so the bench can start either. With an origin, a
certificate and its key it is that place over TLS, behind a login that says yes to everybody.
"""

import socket
import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth.auth import ClientRegistrationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

SCOPE = "echo"
origin, chain, key = sys.argv[1:] or (None, None, None)
door = InMemoryOAuthProvider(
    base_url=origin,
    client_registration_options=ClientRegistrationOptions(
        enabled=True, valid_scopes=[SCOPE], default_scopes=[SCOPE]
    ),
    required_scopes=[SCOPE],
)
server = FastMCP("echo", auth=door if origin else None)


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
