"""Whoever uses a house while it is served: programs with logins, people with a browser, somebody at the machine."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

from caller import Answer, Caller
from durability_clients import TASKS
from logins import DEVICE_CODE
from targets import Broken, Running

from server.admin import control

CLIENT: Final = {"client_id": "ostiary-cli"}
OVER: Final = frozenset({"completed", "failed", "cancelled"})


class Guest:
    """On one connection, from another address with each request."""

    def __init__(self, server: Running, data: Path, seed: int = 1) -> None:
        self._data = data
        self.dice = Random(seed)
        self._caller = Caller(server.host, server.port, self.dice)

    def close(self) -> None:
        self._caller.close()

    def log_in(self) -> dict[str, str]:
        """By a code, approved at the machine: whose it is owns the server."""
        codes = _fine(self._caller.form("/device_authorization", CLIENT)).json
        found = self.ask("find", code=codes["user_code"])
        self.ask("approve", id=found["id"])
        form = {**CLIENT, "grant_type": DEVICE_CODE, "device_code": codes["device_code"]}
        return _fine(self._caller.form("/token", form)).json

    def refresh(self, token: str) -> dict[str, str]:
        form = {**CLIENT, "grant_type": "refresh_token", "refresh_token": token}
        return _fine(self._caller.form("/token", form)).json

    def revoke(self, token: str) -> None:
        _fine(self._caller.form("/revoke", {**CLIENT, "token": token}))

    def call(self, token: str, name: str = "echo", /, **arguments: object) -> dict[str, Any]:
        params = {"name": name, "arguments": arguments or {"text": "hello"}}
        answer = _fine(self._caller.call("tools/call", params, token=token, name=name)).json
        if "error" in answer or answer["result"].get("isError"):
            raise Broken(f"a call of {name} was answered {answer}")
        return answer["result"]

    def task(self, token: str, name: str, /, **arguments: object) -> None:
        """A tool that is called as a task, asked for until it has ended."""
        params = {"name": name, "arguments": arguments}
        task = _fine(
            self._caller.call("tools/call", params, token=token, name=name, capabilities=TASKS)
        ).json["result"]
        while task["status"] not in OVER:
            asked = {"taskId": task["taskId"]}
            task = _fine(
                self._caller.call("tasks/get", asked, token=token, name=task["taskId"], capabilities=TASKS)
            ).json["result"]

    def listed(self, token: str, cursor: str | None = None) -> dict[str, Any]:
        params = {} if cursor is None else {"cursor": cursor}
        return _fine(self._caller.call("tools/list", params, token=token)).json["result"]

    def page(self, path: str, cookie: str) -> str:
        """Of somebody who is signed in."""
        answer = _fine(self._caller.get(path, {"Cookie": f"ostiary={cookie}"}))
        return answer.body.decode()

    def ask(self, command: str, /, **arguments: object) -> Any:
        """At the machine."""
        return control.ask(self._data, command, arguments).result


def _fine(answer: Answer) -> Answer:
    if answer.status != 200:
        raise Broken(f"answered {answer.status}: {answer.body[:400]!r}")
    return answer
