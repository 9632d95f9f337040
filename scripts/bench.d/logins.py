"""Device logins against a running authorization server, approved at its machine, and the load of their refreshes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from targets import Broken, Running
from wire import fetch, form_request, request

from server.admin import control

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """Where an authorization server describes itself, whom it knows, and how a person's yes is said to it."""

    metadata: str
    client: dict[str, str]  # what a device says of itself
    approve: Callable[[Running, str], None]  # the user code


@dataclass(kw_only=True)
class Logins:
    server: Running
    token_path: str
    client_id: str
    access_token: str
    refresh_tokens: list[str]
    connections: int | None = None  # one for each unless it is said

    def job(self, seconds: float, rate: float | None) -> str:
        return json.dumps({
            "host": self.server.host, "port": self.server.port, "path": self.token_path, "client_id": self.client_id,
            "tokens": self.refresh_tokens, "connections": self.connections or len(self.refresh_tokens),
            "seconds": seconds, "rate": rate,
        })  # fmt: skip


def ours(folder: Path) -> Issuer:
    """An Ostiary that `targets.ostiary` started in this folder, with the public client that every installation has."""

    def approve(_: Running, user_code: str) -> None:
        found = control.ask(folder / "data", "find", {"code": user_code})
        control.ask(folder / "data", "approve", {"id": found.result["id"]})

    return Issuer(
        metadata="/.well-known/oauth-authorization-server",
        client={"client_id": "ostiary-cli"},
        approve=approve,
    )


def oidc_provider() -> Issuer:
    """tests/peers/oidc_provider."""

    def approve(server: Running, user_code: str) -> None:
        _get(server, f"/approve?user_code={user_code}")

    return Issuer(
        metadata="/.well-known/openid-configuration",
        client={"client_id": "bench", "scope": "echo"},
        approve=approve,
    )


def log_in(server: Running, issuer: Issuer, count: int = 1) -> Logins:
    metadata = _get(server, issuer.metadata)
    asking = urlsplit(metadata["device_authorization_endpoint"]).path
    token_path = urlsplit(metadata["token_endpoint"]).path
    client_id = issuer.client["client_id"]
    access = ""
    refresh: list[str] = []
    for _ in range(count):
        codes = _post(server, asking, issuer.client)
        issuer.approve(server, codes["user_code"])
        form = {"grant_type": DEVICE_CODE, "device_code": codes["device_code"], "client_id": client_id}
        tokens = _post(server, token_path, form)
        access = tokens["access_token"]
        refresh.append(tokens["refresh_token"])
    return Logins(
        server=server, token_path=token_path, client_id=client_id, access_token=access, refresh_tokens=refresh
    )


def _get(server: Running, path: str) -> dict[str, str]:
    return _answer(server, path, request(server.host, server.port, "GET", path, {}))


def _post(server: Running, path: str, form: dict[str, str]) -> dict[str, str]:
    return _answer(server, path, form_request(server.host, server.port, path, form))


def _answer(server: Running, path: str, message: bytes) -> dict[str, str]:
    status, answer = fetch(server.host, server.port, message)
    if status != 200:
        raise Broken(f"{server.target.name}: {path} answered {status}: {answer}")
    return answer


@contextmanager
def refreshing(
    logins: Logins, *, core: int, seconds: float, rate: float | None
) -> Generator[dict[str, float]]:
    """Refresh in another process while the body runs; the result is in the dictionary afterwards."""
    script = str(Path(__file__).with_name("refresh_load.py"))
    result: dict[str, float] = {}
    with subprocess.Popen(
        ("taskset", "-c", str(core), sys.executable, script),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin
        process.stdin.write(logins.job(seconds, rate))
        process.stdin.close()
        process.stdin = None
        try:
            yield result
            output, errors = process.communicate(timeout=seconds + 30)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Broken(f"the refreshing process failed: {errors.strip()}")
    answer = json.loads(output)
    logins.refresh_tokens = answer.pop("tokens")
    result.update(answer)
