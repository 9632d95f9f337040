"""authlib and requests-oauthlib, as programs that know nothing of MCP use them: a browser login with PKCE, a call, a refresh,
the end of the login.

usage: CLIENT_SECRET=… python python_oauth_login.py authlib|requests ISSUER ENDPOINT CLIENT_ID       (no secret: a public client)
Prints {"open": URL} where a program would open a browser, and {"answer": …} at its end.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import requests

os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"


class Callback(BaseHTTPRequestHandler):
    arrived: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.arrived.append(self.path)
        self.send_response(200)
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"done")

    def log_message(self, *args: object) -> None:
        """Quiet."""


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def call(session: Any, endpoint: str, text: str) -> str:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": text}},
    }
    answer = session.post(endpoint, json=body, headers={"Accept": "application/json, text/event-stream"})
    answer.raise_for_status()
    return answer.json()["result"]["content"][0]["text"]


def main(library: str, issuer: str, endpoint: str, client_id: str) -> None:
    secret = os.environ.get("CLIENT_SECRET") or None
    found = requests.get(f"{issuer}/.well-known/oauth-authorization-server", timeout=60).json()
    listener = HTTPServer(("127.0.0.1", 0), Callback)
    redirect = f"http://127.0.0.1:{listener.server_port}/callback"
    session: Any
    if library == "authlib":
        from authlib.common.security import generate_token
        from authlib.integrations.requests_client import OAuth2Session

        session = OAuth2Session(
            client_id,
            secret,
            redirect_uri=redirect,
            scope="mcp",
            code_challenge_method="S256",
            token_endpoint=found["token_endpoint"],
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
        )
        verifier = generate_token(48)
        address, _ = session.create_authorization_url(found["authorization_endpoint"], code_verifier=verifier)
        say({"open": address})
        listener.handle_request()
        back = f"http://127.0.0.1:{listener.server_port}{Callback.arrived[0]}"
        token = session.fetch_token(
            found["token_endpoint"], authorization_response=back, code_verifier=verifier
        )
        first = call(session, endpoint, library)
        renewed = session.refresh_token(found["token_endpoint"], refresh_token=token["refresh_token"])
        second = call(session, endpoint, "renewed")
        ended = session.revoke_token(found["revocation_endpoint"], token=renewed["refresh_token"]).status_code
    else:
        from requests_oauthlib import OAuth2Session as Session

        session = Session(client_id, redirect_uri=redirect, scope=["mcp"], pkce="S256")
        address, _ = session.authorization_url(found["authorization_endpoint"])
        say({"open": address})
        listener.handle_request()
        back = f"http://127.0.0.1:{listener.server_port}{Callback.arrived[0]}"
        token = session.fetch_token(
            found["token_endpoint"], authorization_response=back, client_secret=secret, include_client_id=True
        )
        first = call(session, endpoint, library)
        extra = {"client_id": client_id} | ({"client_secret": secret} if secret else {})
        renewed = session.refresh_token(
            found["token_endpoint"], refresh_token=token["refresh_token"], **extra
        )
        second = call(session, endpoint, "renewed")
        ended = requests.post(
            found["revocation_endpoint"], data={"token": renewed["refresh_token"], **extra}, timeout=60
        ).status_code
    after = requests.post(
        endpoint, headers={"Authorization": f"Bearer {renewed['access_token']}"}, timeout=60
    ).status_code
    say(
        {
            "answer": {
                "text": [first, second],
                "scope": "".join(renewed["scope"]),
                "ended": ended,
                "afterwards": after,
            }
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:5])
