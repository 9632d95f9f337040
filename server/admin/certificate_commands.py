"""Commands behind the admin socket for the certificate that is served: `ostiary certificate status`, `renew`, `revoke`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from auth.audit import audit_trail
from auth.values.identity_model import Millis
from server.admin.bounded_arguments import text
from server.admin.control import CommandRefused, Handler
from server.store.jobs import Store

# RFC 5280 §5.3.1: those that the holder of a certificate has.
REASONS: Final[Mapping[str, int]] = MappingProxyType(
    {"unspecified": 0, "key-compromise": 1, "superseded": 4, "cessation": 5}
)


class RenewsCertificate(Protocol):
    """Whoever gets certificates here, or can ask who does."""

    @property
    def has_one(self) -> bool:
        """That is served."""
        ...

    async def renew(self) -> int:
        """A new certificate with a new key, now. → how many attempts will be over when this one is. Raises `CannotKeep`."""
        ...

    async def revoke(self, reason: int, *, at_once: bool) -> int:
        """Likewise, and what is served is revoked. Raises `LookupError` where there is none."""
        ...


class CertificateAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """`described`: None where nothing is served by https. `keeper`: None where no domain is configured."""

    described: Callable[[], Mapping[str, Any]] | None
    keeper: RenewsCertificate | None
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
        return await _asked(keeper.renew())

    async def revoke(self, arguments: Mapping[str, Any], actor: str) -> Any:
        keeper = self._keeper()
        reason = text(arguments, "reason", 40) or "unspecified"
        if reason not in REASONS:
            raise CommandRefused(f"there is no reason {reason}", f"one of {', '.join(REASONS)}")
        if not keeper.has_one:
            raise CommandRefused("there is no certificate that could be revoked")
        await self._write_down("certificate.revocation_asked", reason, actor)
        return await _asked(keeper.revoke(REASONS[reason], at_once=bool(arguments.get("at_once"))))

    def _keeper(self) -> RenewsCertificate:
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
            partial(audit_trail.record, at=self.clock(), event=event, actor=actor, reason=reason)
        )


async def _asked(asking: Awaitable[int]) -> Any:
    from server.certificates.kept_certificates import CannotKeep  # loaded where there is a keeper

    try:
        return {"attempt": await asking}
    except CannotKeep as problem:
        raise CommandRefused(str(problem), problem.hint) from problem
