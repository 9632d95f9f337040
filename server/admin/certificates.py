"""Commands behind the admin socket for the certificate that is served: `ostiary certificate status`, `renew`, `revoke`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from auth import audit
from auth.values.model import Millis
from server.admin.control import CommandRefused, Handler
from server.admin.reading import text
from server.store.jobs import Store

if TYPE_CHECKING:
    from server.acme.keeper import CertificateKeeper

# RFC 5280 §5.3.1: those that the holder of a certificate has.
REASONS: Final[Mapping[str, int]] = MappingProxyType(
    {"unspecified": 0, "key-compromise": 1, "superseded": 4, "cessation": 5}
)


class CertificateAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """`described`: None where nothing is served by https. `keeper`: None where no domain is configured."""

    described: Callable[[], Mapping[str, Any]] | None
    keeper: CertificateKeeper | None
    store: Store
    clock: Callable[[], Millis]

    def commands(self) -> dict[str, Handler]:
        return {
            "certificate": self.status,
            "certificate.renew": self.renew,
            "certificate.revoke": self.revoke,
        }

    async def status(self, arguments: Mapping[str, Any], actor: str) -> Any:
        return None if self.described is None else self.described()

    async def renew(self, arguments: Mapping[str, Any], actor: str) -> Any:
        keeper = self._keeper()
        await self._write_down("certificate.renewal_asked", "", actor)
        return {"attempt": keeper.renew()}

    async def revoke(self, arguments: Mapping[str, Any], actor: str) -> Any:
        from server.acme.files import AcmeFileError

        keeper = self._keeper()
        reason = text(arguments, "reason", 40) or "unspecified"
        if reason not in REASONS:
            raise CommandRefused(f"there is no reason {reason}", f"one of {', '.join(REASONS)}")
        if keeper.state.serving is None:
            raise CommandRefused("there is no certificate that could be revoked")
        await self._write_down("certificate.revocation_asked", reason, actor)
        try:
            attempt = await keeper.revoke(REASONS[reason], at_once=bool(arguments.get("at_once")))
        except AcmeFileError as problem:
            raise CommandRefused(str(problem), problem.hint) from problem
        return {"attempt": attempt}

    def _keeper(self) -> CertificateKeeper:
        if self.keeper is not None:
            return self.keeper
        if self.described is None:
            raise CommandRefused(
                "this server serves no certificate", "`domain` in the settings has it get one by itself"
            )
        raise CommandRefused(
            "this server's certificate is read from files, and renewed by whatever wrote them",
            "once they have changed it is read again within seconds",
        )

    async def _write_down(self, event: str, reason: str, actor: str) -> None:
        await self.store.write(
            partial(audit.record, at=self.clock(), event=event, actor=actor, reason=reason)
        )
