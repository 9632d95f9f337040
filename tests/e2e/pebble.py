"""A real certificate authority on this machine, and a name server that says what a test wants: pebble and its challtestsrv."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import ROOT, WAIT_SECONDS, needed, until

from tests.free_ports import free_port
from tests.made_certificates import write_certificate

HOME = ROOT / ".work" / "peers" / "pebble"
NAME = "agent.example.org"


@dataclass(frozen=True, kw_only=True)
class Pebble:
    """`tls_port` and `http_port` are where it looks at names, `ca_file` is by whom it is known."""

    directory: str
    ca_file: Path
    tls_port: int
    http_port: int
    management: str
    names: str  # of the name server's management

    def leads(self, name: str, *addresses: str) -> None:
        """What the name server says of it from now on."""
        self._post(f"{self.names}/clear-a", {"host": name})
        if addresses:
            self._post(f"{self.names}/add-a", {"host": name, "addresses": list(addresses)})

    def leads_nowhere(self, name: str) -> None:
        self._post(f"{self.names}/set-servfail", {"host": name})

    def leads_again(self, name: str) -> None:
        self._post(f"{self.names}/clear-servfail", {"host": name})

    def root(self) -> str:
        return self._get(f"{self.management}/roots/0")

    def status_of(self, serial: str) -> dict[str, Any]:
        return json.loads(self._get(f"{self.management}/cert-status-by-serial/{serial}"))

    def _get(self, url: str) -> str:
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS, context=self._trust()) as answer:
            return answer.read().decode()

    def _post(self, url: str, told: dict[str, Any]) -> None:
        with urllib.request.urlopen(url, json.dumps(told).encode(), timeout=WAIT_SECONDS):
            pass

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))


@contextmanager
def certificate_authority(
    folder: Path, *, life_seconds: int = 7776000, reject_nonces: int = 5, eab: dict[str, str] | None = None
) -> Generator[Pebble]:
    """Strict. `reject_nonces`: of a hundred, so many numbers are refused for no reason."""
    for program in ("pebble", "pebble-challtestsrv"):
        needed(HOME / program, "scripts/peers authority")
    folder.mkdir(parents=True)
    own, key = write_certificate(folder, "pebble")
    api, management, tls, plain, dns, names = (free_port() for _ in range(6))
    settings: dict[str, Any] = {
        "listenAddress": f"127.0.0.1:{api}",
        "managementListenAddress": f"127.0.0.1:{management}",
        "certificate": str(own),
        "privateKey": str(key),
        "httpPort": plain,
        "tlsPort": tls,
        "ocspResponderURL": "",
        "externalAccountBindingRequired": bool(eab),
        "externalAccountMACKeys": eab or {},
        "domainBlocklist": ["blocked-domain.example"],
        "retryAfter": {"authz": 1, "order": 1},
        # Who names none gets any of them.
        "profiles": {
            "default": {"description": "the usual one", "validityPeriod": life_seconds},
            "shortlived": {"description": "a short one", "validityPeriod": 518400},
        },
    }
    config = folder / "pebble.json"
    config.write_text(json.dumps({"pebble": settings}), "utf-8")
    environment = {
        "PEBBLE_WFE_NONCEREJECT": str(reject_nonces),
        "PEBBLE_VA_NOSLEEP": "1",
        "PEBBLE_AUTHZREUSE": "0",
        "PEBBLE_CHAIN_LENGTH": "1",
    }
    commands = [
        (
            str(HOME / "pebble-challtestsrv"), "-dnsserver", f"127.0.0.1:{dns}", "-management", f"127.0.0.1:{names}", "-http01", "",
            "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "",
        ),
        (str(HOME / "pebble"), "-config", str(config), "-strict", "-dnsserver", f"127.0.0.1:{dns}"),
    ]  # fmt: skip
    log = folder / "said"
    with log.open("wb") as said:
        running = [
            subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=folder)
            for command in commands
        ]
        try:
            for port in (api, names):
                until(f"port {port}: {log.read_text('utf-8', 'replace')[-2000:]}", lambda: _answers(port))  # noqa: B023
            yield Pebble(
                directory=f"https://localhost:{api}/dir",
                ca_file=own,
                tls_port=tls,
                http_port=plain,
                management=f"https://localhost:{management}",
                names=f"http://127.0.0.1:{names}",
            )
        finally:
            for process in running:
                process.kill()
                process.wait()


def _answers(port: int) -> bool | None:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        time.sleep(0.05)
        return None
    return True
