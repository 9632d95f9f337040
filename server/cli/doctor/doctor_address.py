"""The step of `ostiary doctor` about the certificate that the server of this machine serves. How its address looks from outside is
client/public_address.py's."""

from __future__ import annotations

import time
from typing import Any, Final

from server.cli import terminal
from server.cli.manage import certificate
from server.client.server_checkup import CheckStep

# Renewal begins long before; a certificate that ends so soon is not going to be renewed by itself.
ENDS_SOON_SECONDS: Final = 3 * 86_400.0


def served_certificate_step(found: dict[str, Any]) -> CheckStep:
    name, serving = "certificate", found["serving"]
    line = certificate.certificate_line(found)
    trouble = found.get("trouble")
    if trouble is not None:
        return CheckStep.failed(
            name, f"{line}; {trouble['words']}", trouble["hint"] or "ostiary certificate status"
        )
    if found.get("ahead_seconds"):
        return CheckStep.failed(
            name, f"{line}; {certificate.clock_line(found['ahead_seconds'])}", "timedatectl set-ntp true"
        )
    if found.get("problem"):
        return CheckStep.failed(
            name, f"{line}; not read: {found['problem']}", "put the files right: they are read again then"
        )
    if serving is None:
        return CheckStep.skipped(name, line, "ostiary certificate status")
    if serving["not_after"] / 1000 - time.time() < ENDS_SOON_SECONDS:
        whose = (
            "ostiary certificate renew"
            if found["kind"] == "acme"
            else "renew it with whatever wrote tls_certificate"
        )
        return CheckStep.failed(name, line, whose)
    renewed = (
        f", renewed by itself in {terminal.duration(found['renews_at'] / 1000 - time.time())}"
        if found.get("renews_at")
        else ""
    )
    return CheckStep.ok(name, f"{line}{renewed}")
