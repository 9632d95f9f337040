"""Host names and addresses as they are written to machines."""

from __future__ import annotations


def in_ascii(host: str) -> str:
    """Write a host as it is looked up (IDNA): other letters may be digits and dots. Raise `UnicodeError`."""
    return host if host.isascii() else host.encode("idna").decode("ascii")


def authority(host: str, port: int | None = None) -> str:
    """Write host and port as a URL has them."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"
