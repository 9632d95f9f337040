"""The state of the certificate, for whoever runs the server: in `ostiary certificate`, `status` and `doctor`, in the log, at /readyz."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from server.certificates.x509_certificates import CertificateFacts

# An authority's clock is right. Below this, nobody is refused for it.
CLOCK_SECONDS: Final = 600.0


class TroubleState(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why there is no new certificate. Times are seconds since 1970."""

    kind: str
    words: str
    hint: str
    since: float
    again_at: float
    attempts: int


class CertificateState(msgspec.Struct, kw_only=True):
    names: tuple[str, ...]
    authority: str
    serving: CertificateFacts | None = None
    renews_at: float | None = None
    doing: Literal["waiting", "getting"] = "waiting"
    attempts: int = 0  # that are over
    trouble: TroubleState | None = None
    # How far the authority's clock is ahead of ours, where that is more than a few minutes.
    ahead_seconds: float = 0.0
    revoking: str = ""  # the fingerprint of what is to be revoked

    def described(self) -> dict[str, Any]:
        """Describe it for the admin socket, with times in milliseconds."""
        trouble, serving = self.trouble, self.serving
        return {
            "kind": "acme",
            "names": list(self.names),
            "authority": self.authority,
            "doing": self.doing,
            "attempts": self.attempts,
            "renews_at": _millis(self.renews_at),
            "ahead_seconds": round(self.ahead_seconds),
            "revoking": self.revoking,
            "serving": None if serving is None else described_facts(serving),
            "trouble": None
            if trouble is None
            else {
                **msgspec.structs.asdict(trouble),
                "since": _millis(trouble.since),
                "again_at": _millis(trouble.again_at),
            },
        }

    def note(self, now: float) -> str:
        """Say in one line how it stands, for whoever looks at /readyz; nothing where all is well."""
        name = self.names[0]
        if self.serving is None:
            why = "it is being got" if self.trouble is None else self.trouble.words
            return f"certificate: none for {name} yet: {why}"
        if self.serving.not_after <= now:
            why = "" if self.trouble is None else f": {self.trouble.words}"
            return f"certificate: that of {name} is over since {_day(self.serving.not_after)}{why}"
        if self.trouble is not None:
            return f"certificate: {self.trouble.words}; the one of before is good until {_day(self.serving.not_after)}"
        if self.ahead_seconds:
            return f"certificate: {clock_words(self.ahead_seconds)}"
        return ""


def described_facts(facts: CertificateFacts) -> dict[str, Any]:
    return {
        "names": list(facts.names),
        "issuer": facts.issuer,
        "serial": facts.serial,
        "fingerprint": facts.fingerprint,
        "not_before": _millis(facts.not_before),
        "not_after": _millis(facts.not_after),
    }


def clock_words(ahead_seconds: float) -> str:
    which = "behind" if ahead_seconds > 0 else "ahead of"
    amount = abs(ahead_seconds)
    spoken = f"{amount / 86_400:.1f} days" if amount >= 86_400 else f"{amount / 60:.0f} minutes"
    return f"this machine's clock is {spoken} {which} that of the certificate authority"


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _millis(moment: float | None) -> int | None:
    return None if moment is None else round(moment * 1000)
