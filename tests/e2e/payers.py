"""Programs of others that pay and settle. A payer is run as its users run it, and pays for a call when the server asks for it. In Python it is
one process for one call, forked from one that has imported its packages; in Node it is a client of its own for one call, in one process."""

from __future__ import annotations

import atexit
import base64
import json
import os
import socket
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
from local_chain import PAYMENT_PEERS, ChainAccount, LocalChain, background
from programs import NODE_BIN, ROOT, WAIT_SECONDS, needed

from tests import forked

PYTHON = ROOT / ".venvs" / "payers" / "bin" / "python"


def node(script: str) -> Sequence[Path | str]:
    return needed(NODE_BIN / "node", "scripts/peers"), needed(
        PAYMENT_PEERS / "node_modules", "scripts/peers"
    ).parent / script


def python(script: str) -> Sequence[Path | str]:
    return needed(PYTHON, "scripts/peers"), "-W", "ignore", PAYMENT_PEERS / script


@dataclass(frozen=True, kw_only=True)
class Paid:
    """What came of a call, in its payer's eyes."""

    status: int | None  # of the last response; over MCP there is none
    body: Any  # parsed, where it is JSON
    receipt: Mapping[str, Any] | None
    failed: bool
    error: str | None  # what the client raised

    @property
    def transaction(self) -> str:
        assert self.receipt is not None, self
        return self.receipt["transaction"]


@dataclass(frozen=True, kw_only=True)
class SignedCall:
    """A payment that was made out and not sent."""

    headers: Mapping[str, str]
    payment: Mapping[str, Any]

    @property
    def nonce(self) -> str:
        return self.payment["payload"]["authorization"]["nonce"]


@dataclass(frozen=True, kw_only=True)
class Payer:
    name: str
    program: str  # in tests/peers/payments
    client: str
    version: int = 2

    @property
    def over_mcp(self) -> bool:
        return self.client == "mcp"

    def pay(
        self, account: ChainAccount, url: str, sent: Any = None, headers: Mapping[str, str] | None = None
    ) -> Paid:
        """One call, paid with a fresh signature. What is sent goes by POST; over MCP it is the name and arguments of a tool."""
        found = self.run(self.client, account, url, sent, headers)
        try:
            body = json.loads(found["body"] or "null")
        except ValueError:
            body = found["body"]
        return Paid(**(found | {"body": body}))

    def run(
        self, client: str, account: ChainAccount, url: str, sent: Any, headers: Mapping[str, str] | None
    ) -> Any:
        body = None if sent is None else json.dumps(sent)
        if not self.program.endswith(".py"):
            return _asked_of_node(
                self.program, key=account.key, client=client, version=self.version, url=url, sent=body,
                headers=dict(headers or {}),
            )  # fmt: skip
        code, said, told = forked.run(
            (client, str(self.version), url, *([] if body is None else [body])),
            environment={
                "PATH": os.environ["PATH"],
                "LANG": "C.UTF-8",
                "PYTHONWARNINGS": "ignore",
                "PAYER_KEY": account.key,
                "PAYER_HEADERS": json.dumps(dict(headers or {})),
            },
            folder=ROOT,
            seconds=WAIT_SECONDS,
            python=str(needed(PYTHON, "scripts/peers")),
            script=PAYMENT_PEERS / self.program,
        )
        assert code == 0, f"{self.name} ended with {code}:\n{said.decode()}\n{told.decode()}"
        return json.loads(said.splitlines()[-1])


_LOCK = threading.Lock()


@cache
def _node_payer(program: str) -> int:
    """The port of one that serves all calls of this process, and ends with it: its standard input does."""
    process = subprocess.Popen(
        [str(part) for part in node(program)],
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    atexit.register(process.wait, WAIT_SECONDS)
    atexit.register(process.stdin.close)
    return int(process.stdout.readline())


def _asked_of_node(program: str, **asked: Any) -> Any:
    with _LOCK:
        port = _node_payer(program)
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as connection:
        connection.sendall(json.dumps(asked).encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answer:
            return json.load(answer)


_PYTHON, _FETCH = "python_payer.py", "fetch_payer.mjs"
PAYERS = {
    payer.name: payer
    for payer in (
        Payer(name="httpx-v2", program=_PYTHON, client="httpx"),
        Payer(name="httpx-v1", program=_PYTHON, client="httpx", version=1),
        Payer(name="requests-v2", program=_PYTHON, client="requests"),
        Payer(name="requests-v1", program=_PYTHON, client="requests", version=1),
        Payer(name="mcp", program=_PYTHON, client="mcp"),
        Payer(name="fetch-v2", program=_FETCH, client="fetch"),
        Payer(name="fetch-v1", program=_FETCH, client="fetch", version=1),
    )
}


def signed(account: ChainAccount, demand: Mapping[str, Any]) -> SignedCall:
    """A payment for what a server asks for, and the header that carries it, made out by @x402/fetch."""
    found = PAYERS["fetch-v2"].run("sign", account, "", demand, None)
    assert found["error"] is None, found["error"]
    return SignedCall(headers=found["headers"], payment=found["payment"])


def demanded(url: str, sent: Any = None, *, version: int = 2) -> Any:
    """What a server asks for a call over HTTP, in one version or the other."""
    answer = httpx2.request(
        "GET" if sent is None else "POST", url, json=sent, trust_env=False, timeout=WAIT_SECONDS
    )
    assert answer.status_code == 402, (answer.status_code, answer.text)
    return answer.json() if version == 1 else json.loads(base64.b64decode(answer.headers["PAYMENT-REQUIRED"]))


@contextmanager
def reference_facilitator(chain: LocalChain, folder: Path) -> Generator[str]:
    """The one that those who wrote the protocol wrote, settling on this chain. Its address."""
    command = (*node("facilitator.mjs"), chain.url)
    key = {"FACILITATOR_KEY": chain.account().key}
    with background(command, folder / "facilitator.log", key) as running:
        yield running.await_words(r"http://[\d.:]+")[0]


@contextmanager
def reference_shop(facilitator: str, pay_to: str, atomic: int, folder: Path) -> Generator[str]:
    """A server that sells in the way of the package x402: `/paid` over HTTP, the tool `paid` at `/mcp`. Its address."""
    command = (*python("reference_shop.py"), facilitator, pay_to, str(atomic))
    with background(command, folder / "shop.log") as running:
        yield running.await_words(r"http://[\d.:]+")[0]
