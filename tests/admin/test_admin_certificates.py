"""`ostiary certificate` behind the admin socket: whoever asks is written down, and who cannot be helped is told why."""

from __future__ import annotations

from typing import Any

import pytest

from server.admin.certificate_commands import REASONS, CertificateAdmin
from server.admin.control import CommandRefused
from server.cli.manage import certificate
from tests.auth.identity_fakes import open_identity


class FakeKeeper:
    def __init__(self, serving: Any = "one") -> None:
        self.has_one = serving is not None
        self.asked: list[tuple[int, bool] | str] = []

    async def renew(self) -> int:
        self.asked.append("renew")
        return 3

    async def revoke(self, reason: int, *, at_once: bool) -> int:
        self.asked.append((reason, at_once))
        return 4


async def commands(store: Any, keeper: Any, described: Any = lambda: {"kind": "acme"}) -> Any:
    return CertificateAdmin(described=described, keeper=keeper, store=store, clock=lambda: 5).commands()


async def test_whoever_asks_for_another_is_in_the_trail() -> None:
    async with open_identity() as identity:
        store: Any = identity.parts.store
        keeper = FakeKeeper()
        table = await commands(store, keeper)
        assert await table["certificate.renew"]({}, "local:7") == {"attempt": 3}
        asked = {"reason": "key-compromise", "at_once": True}
        assert await table["certificate.revoke"](asked, "local:7") == {"attempt": 4}
        assert keeper.asked == ["renew", (1, True)]
        rows = await store.read(
            lambda db: db.fetch_all(
                "SELECT event, actor, reason FROM audit WHERE event LIKE 'certificate.%' ORDER BY seq"
            )
        )
        assert [(row["event"], row["actor"], row["reason"]) for row in rows] == [
            ("certificate.renewal_asked", "local:7", ""),
            ("certificate.revocation_asked", "local:7", "key-compromise"),
        ]
        with pytest.raises(CommandRefused, match="there is no reason"):
            await table["certificate.revoke"]({"reason": "fun"}, "local:7")
        with pytest.raises(CommandRefused, match="that could be revoked"):
            await (await commands(store, FakeKeeper(None)))["certificate.revoke"]({}, "local:7")


async def test_without_an_authority_nobody_can_be_asked() -> None:
    async with open_identity() as identity:
        store: Any = identity.parts.store
        of_files = await commands(store, None)
        with pytest.raises(CommandRefused, match="read from files"):
            await of_files["certificate.renew"]({}, "local:7")
        without = await commands(store, None, None)
        assert await without["certificate"]({}, "local:7") is None
        with pytest.raises(CommandRefused, match="serves no certificate"):
            await without["certificate.revoke"]({}, "local:7")


def test_the_reasons_of_the_command_are_those_that_the_server_knows() -> None:
    assert tuple(REASONS) == certificate.REASONS
