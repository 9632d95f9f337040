"""The words of every plain setting, in the order people need them: for `ostiary serve --help` and the commented settings file.

Their types and defaults are in setting_shapes.py. This module loads none of those, because help is to come at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# By heading: the name, what is typed behind its flag, and the text. A text ends with the default, if that says something.
PLAIN_SETTINGS: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = MappingProxyType(
    {
        "Where to listen, and under which name": (
            ("host", "ADDRESS", "listen here; 127.0.0.1 serves this machine, or a proxy on it (127.0.0.1)"),
            ("port", "N", "listen on this port; 0 picks a free one (8420)"),
            ("issuer", "URL", "the address that callers type, without a path; needed if other machines call"),
            ("allowed_hosts", "NAME,…", "further host names to answer to, besides the issuer's"),
            ("allowed_origins", "ORIGIN,…", 'web origins whose pages may call /mcp; "*" lets any page try'),
            ("trusted_proxies", "NETWORK,…", "believe X-Forwarded-* from these networks only"),
            ("tls_certificate", "FILE", "PEM certificate chain, if this server ends TLS itself"),
            ("tls_key", "FILE", "its PEM private key"),
            ("domain", "NAME,…", "get certificates for these host names, and serve them on port 443"),
            (
                "accept_terms",
                "YES",
                "agree to the terms of their authority: Let's Encrypt, or that in [acme]",
            ),
            ("http_port", "N", "send http on this port on to https, and prove names there; -1 for none (-1)"),
            ("allow_insecure_http", "YES", "send tokens in clear: only over networks that you own"),
        ),
        "Who may call": (
            ("auth", "MODE", "callers log in: oauth; or anybody on this machine may call: none (oauth)"),
            ("access_token_minutes", "N", "how long access tokens live; each call checks its login (60)"),
            ("login_days", "N", "how long a login lives, unless you revoke it (30)"),
            ("browser_login_days", "N", "how long a login through a browser lives (90)"),
            ("device_code_minutes", "N", "how long a code shown in a terminal can be approved (10)"),
            (
                "device_approval",
                "WHERE",
                "approve anywhere, same-network as the device, or terminal (anywhere)",
            ),
            (
                "registration",
                "MODE",
                "programs may register: open, with a token that you give, or off (open)",
            ),
            ("registration_token", "WHERE", "that token: env:NAME or file:/path"),
            ("client_documents", "MODE", "client ids that are addresses: on, pinned (some known), off (on)"),
            ("client_document_hosts", "NAME,…", "only those at these hosts; empty: at any"),
            ("try_page", "WHO", "who may try tools out in a browser: owners, people or off (owners)"),
            ("signing_key_days", "N", "how long a key signs access tokens (90)"),
        ),
        "What is kept, and where": (
            ("data_dir", "DIR", "where the database and keys are; empty: the platform's place for data"),
            ("key_file", "WHERE", "the key that seals what is stored: a path, file:/path or env:NAME"),
            ("store", "WHERE", "PostgreSQL in place of a file: env:NAME or file:/path has its address"),
            ("store_ca", "FILE", "PEM certificates of its authority; empty: the machine's authorities"),
            ("store_readers", "N", "connections to it that read, besides the one that writes (2)"),
            ("workers", "N", "processes that serve, with PostgreSQL; auto: one for each processor (1)"),
            ("call_days", "N", "calls are kept on record for so many days (30)"),
            ("call_rows", "N", "and at most so many of them (1000000)"),
            ("backup_hours", "N", "back the database up every so many hours; 0: not by itself (0)"),
            ("backup_keep", "N", "how many of these back-ups stay (7)"),
            ("backup_dir", "DIR", "where they go, best on another disk; empty: backups/ in data_dir"),
            (
                "programs_run_as",
                "USER",
                "as whom programs that the server starts run, where run_as does not say it; empty: as the server",
            ),
        ),
        "Watching it": (
            ("admin_port", "N", "/healthz, /readyz and /metrics on 127.0.0.1 at this port; -1: none (-1)"),
            ("log_format", "STYLE", "text on a terminal, else JSON lines: auto; or json, console (auto)"),
            ("log_level", "LEVEL", "log from this level on: debug, info, warning or error (info)"),
            ("security_contact", "ADDRESS,…", "whom security.txt names for weaknesses: mailto: or https:"),
            (
                "releases",
                "URL",
                "where `ostiary upgrade --check` looks for a newer version; nothing else asks",
            ),
        ),
        "Bounds": (
            ("drain_seconds", "S", "calls in flight get this long to finish at shutdown (10)"),
            ("max_connections", "N", "most connections at once (4096)"),
            ("max_connections_per_ip", "N", "most connections of one address; loopback is not counted (256)"),
            ("max_body_kib", "N", "the largest request in KiB (2048)"),
        ),
    }
)
