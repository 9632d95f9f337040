"""A wallet with limits, as each new process finds it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server.lib.evm.key_files import load_key
from server.lib.money.amounts import shown
from server.payments.buyer.payer import PaidCall, Payer
from server.payments.buyer.spending import SpendingFile
from server.payments.buyer.spending_policy import read_policy
from tests.payments.buyer.shop import KEY, PAYER

NOW = 1_795_000_000.0


@dataclass
class Wallet:
    directory: Path
    now: float = NOW
    limits: dict[str, Any] = field(default_factory=dict)
    agrees: bool | None = None  # None: nobody is there
    asked: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def spending(self) -> SpendingFile:
        return SpendingFile(self.directory / "kept")

    @property
    def spent(self) -> str:
        return shown(self.spending.spent(PAYER, int(self.now)))

    def payer(self) -> Payer:
        """As a new process has it."""

        async def agree(words: str) -> bool:
            self.asked.append(words)
            return self.agrees is True

        limits: dict[str, Any] = {
            "per_call": "0.05",
            "per_day": "0.1",
            "networks": ["base-sepolia"],
            "payees": ["any"],
            "confirm_above": "0.05",
            **self.limits,
        }
        return Payer(
            load_key("env:KEY", {"KEY": KEY}),
            read_policy(**limits),
            self.spending,
            now=lambda: self.now,
            random=os.urandom,
            change=lambda key, value: f"set {key} to {value}",
            agree=None if self.agrees is None else agree,
            tell=self.told.append,
        )

    def call(self, text: str = "hello") -> PaidCall:
        return self.payer().call("http://x/mcp", "the tool `echo`", ["echo", {"text": text}])


def change(key: str, value: str) -> str:
    return f"set {key} to {value}"
