"""Device logins against a running Ostiary, approved at the machine, and what can be measured of their refreshes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from targets import Broken, Running
from wire import fetch, form_request, request

from server import control

CLIENT_ID = "ostiary-cli"  # the public client that every installation has
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(kw_only=True)
class Logins:
    server: Running
    token_path: str
    access_token: str
    refresh_tokens: list[str]

    def job(self, seconds: float, rate: float | None) -> str:
        return json.dumps({
            "host": self.server.host, "port": self.server.port, "path": self.token_path, "client_id": CLIENT_ID,
            "tokens": self.refresh_tokens, "seconds": seconds, "rate": rate,
        })  # fmt: skip


def log_in(server: Running, data_dir: Path, count: int = 1) -> Logins:
    status, metadata = fetch(
        server.host,
        server.port,
        request(server.host, server.port, "GET", "/.well-known/oauth-authorization-server", {}),
    )
    if status != 200:
        raise Broken(f"no authorization server metadata: {status}")
    asking = urlsplit(str(metadata["device_authorization_endpoint"])).path
    token_path = urlsplit(str(metadata["token_endpoint"])).path
    access = ""
    refresh: list[str] = []
    for _ in range(count):
        codes = _post(server, asking, {"client_id": CLIENT_ID})
        found = control.ask(data_dir, "find", {"code": codes["user_code"]})
        control.ask(data_dir, "approve", {"id": found.result["id"]})
        form = {"grant_type": DEVICE_CODE, "device_code": codes["device_code"], "client_id": CLIENT_ID}
        tokens = _post(server, token_path, form)
        access = tokens["access_token"]
        refresh.append(tokens["refresh_token"])
    return Logins(server=server, token_path=token_path, access_token=access, refresh_tokens=refresh)


def _post(server: Running, path: str, form: dict[str, str]) -> dict[str, str]:
    message = form_request(server.host, server.port, path, form)
    status, answer = fetch(server.host, server.port, message)
    if status != 200:
        raise Broken(f"{path} answered {status}: {answer}")
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
