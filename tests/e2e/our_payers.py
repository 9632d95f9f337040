"""Our own client among the payers: `ostiary call --pay`, and `ostiary connect --pay` with a program behind it. Each payment is made by a process that ends;
what it has signed is in the home of its account.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local_chain import V1_NAME, ChainAccount
from payers import Paid
from programs import SOURCE, WAIT_SECONDS, Program

from server.mcp.versions import LATEST
from tests import forked

RECEIPT = "x402/payment-response"
META = {
    "io.modelcontextprotocol/protocolVersion": LATEST.version,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def purse(account: ChainAccount, folder: Path) -> Program:
    """The home of somebody with this account, whose wallet pays without asking."""
    home = folder / f"purse-{account.address.lower()}"
    program = Program(command=SOURCE, home=home)
    if not home.exists():
        home.mkdir(mode=0o700)
        key = home / "key"
        key.touch(0o600)
        key.write_text(account.key, "utf-8")
        limits = ("--per-call", "1", "--per-day", "10", "--confirm-above", "1")
        program.run(
            "wallet", "allow", "--key", f"file:{key}", "--network", V1_NAME, "--payee", "any", *limits
        )
    return program


def pay_by_call(
    account: ChainAccount, folder: Path, url: str, tool: str, arguments: Mapping[str, Any]
) -> Paid:
    program = purse(account, folder)
    code, said, told = forked.run(
        ("call", "--pay", "--json", url, tool, json.dumps(arguments)),
        environment=program.environment(),
        folder=program.home,
        seconds=WAIT_SECONDS,
    )
    assert account.key[2:].encode() not in said + told
    return _paid(json.loads(said) if said else None, told.decode() if code else None)


def pay_by_bridge(
    account: ChainAccount, folder: Path, url: str, tool: str, arguments: Mapping[str, Any]
) -> Paid:
    program = purse(account, folder)
    asked = {"name": tool, "arguments": arguments, "_meta": META}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked})
    (reads, asks), (hears, says) = os.pipe(), os.pipe()
    with open(asks, "wb") as asking, open(hears, "rb") as hearing, tempfile.TemporaryFile() as told:
        with open(reads, "rb"), open(says, "wb"):  # the bridge's own ends
            bridge = forked.start(
                ("connect", "--pay", "--no-login", url),
                environment=program.environment(),
                folder=program.home,
                files=(reads, says, told.fileno()),
            )
        try:
            asking.write(f"{line}\n".encode())
            asking.flush()
            heard = json.loads(hearing.readline())
            asking.close()
            bridge.wait(WAIT_SECONDS)
        finally:
            bridge.kill()
        told.seek(0)
        assert account.key[2:].encode() not in told.read()
    return _paid(heard.get("result"), None if "result" in heard else str(heard["error"]))


def _paid(result: Any, error: str | None) -> Paid:
    receipt = None if result is None else result.get("_meta", {}).get(RECEIPT)
    failed = result is None or result.get("isError") is True
    return Paid(status=None, body=result, receipt=receipt, failed=failed, error=error)


OURS = {"call --pay": pay_by_call, "connect --pay": pay_by_bridge}
