"""HTTP as plain values: what an endpoint is given and what it gives back. No framework, no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class WireRequest:
    method: str
    path: str = field(repr=False)  # a one-time link's secret is in it
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # Only of a POST with a form body, never mixed with the query.
    form: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # Only of a POST or PUT with a JSON body, undecoded.
    json: bytes = field(default=b"", repr=False)
    # Names in lower case; duplicates joined by ", ".
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    origin: str  # scheme and host that the caller typed, already allow-listed: "http://localhost:8420", no trailing slash
    ip: str
    request_id: str = ""  # by which the log knows it


@dataclass(frozen=True, kw_only=True, slots=True)
class WireReply:
    status: int = 200
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # cookies
    body: bytes = field(default=b"", repr=False)
