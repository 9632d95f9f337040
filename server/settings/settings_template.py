"""The commented `ostiary.toml` that `ostiary init` writes: every setting with its default, in the order people need them."""

from __future__ import annotations

from typing import Final

import msgspec

from server.settings.setting_shapes import Config

SECTIONS: Final[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "Where to listen, and under which name",
        (
            (
                "host",
                "127.0.0.1 keeps the server to this machine. Behind a proxy on this machine that is right, too.",
            ),
            ("port", "0 picks a free one."),
            (
                "issuer",
                "The address that callers type, without a path. Needed as soon as others than this machine call.",
            ),
            ("allowed_hosts", "Further host names to answer to, besides the issuer's."),
            ("allowed_origins", 'Web pages of these origins may call /mcp. ["*"] lets any page try.'),
            ("trusted_proxies", "Believe X-Forwarded-* from these networks only."),
            ("tls_certificate", "PEM files, if this server ends TLS itself."),
            ("tls_key", ""),
            (
                "domain",
                "Or names that lead here: it gets a certificate for them by itself, and listens on port 443 of every address.",
            ),
            (
                "accept_terms",
                "With domain: you agree to the terms of the certificate authority, Let's Encrypt unless [acme] names another.",
            ),
            (
                "http_port",
                "80: what is asked for in clear there is sent on to https; certificates are proved there as well.",
            ),
            (
                "allow_insecure_http",
                "true sends tokens in clear over the network. Only for networks that you own.",
            ),
        ),
    ),
    (
        "Who may call",
        (
            (
                "auth",
                '"oauth": callers log in. "none": anybody on this machine may call; refused on other addresses.',
            ),
            (
                "access_token_minutes",
                "Access tokens are checked against the login at every call, so they may live long.",
            ),
            ("login_days", "A login ends after this, or when you revoke it."),
            ("browser_login_days", "The same for a login through a browser."),
            ("device_code_minutes", "How long a code shown in a terminal can be approved."),
            (
                "device_approval",
                '"same-network": only in a browser near the device. "terminal": only with `ostiary approve` at this machine.',
            ),
            (
                "registration",
                'Programs may register themselves: "open", with a "token" that you hand out, or not at all: "off".',
            ),
            ("registration_token", 'That token: "env:NAME" or "file:/path".'),
            (
                "client_documents",
                'Programs whose id is the address of a document: "on" fetches it, "pinned" knows some well-known ones, "off".',
            ),
            ("client_document_hosts", "Only documents at these hosts. Empty: at any."),
            (
                "try_page",
                'Who may try tools out in a browser, signed in: "owners", "people" (everybody with an account), "off".',
            ),
            ("signing_key_days", "A new key signs access tokens after so many days."),
        ),
    ),
    (
        "What is kept, and where",
        (
            ("data_dir", "The database and the keys. Empty: the platform's place for application data."),
            (
                "key_file",
                'The key that seals what is stored: a path, "file:/path" or "env:NAME". Empty: in data_dir.',
            ),
            (
                "store",
                'A PostgreSQL database in place of a file in data_dir: where its address is kept, "env:NAME" or "file:/path".',
            ),
            (
                "store_ca",
                "PEM certificates of the authority that its own is from. Empty: the machine's authorities.",
            ),
            ("store_readers", "So many connections that read, besides the one that writes."),
            (
                "workers",
                'So many processes serve, where `store` leads to PostgreSQL; "auto": one for each processor.',
            ),
            (
                "call_days",
                "Each call is written down: by whom, how long it took, what came of it. For so many days,",
            ),
            ("call_rows", "and at most so many of them."),
            ("backup_hours", "Back the database up every so many hours; 0: not by itself."),
            ("backup_keep", "How many of these back-ups stay."),
            ("backup_dir", "Where they go, best on another disk. Empty: backups/ in data_dir."),
        ),
    ),
    (
        "Watching it",
        (
            ("admin_port", "/healthz, /readyz and /metrics on 127.0.0.1, at this port; -1 for none."),
            ("log_format", '"auto" is readable text on a terminal and JSON lines otherwise.'),
            ("log_level", ""),
            (
                "security_contact",
                "Whom to tell of a weakness of this server: /.well-known/security.txt names them. Empty: there is none.",
            ),
            (
                "releases",
                "Where `ostiary upgrade --check` looks for a newer version. Nothing else asks there.",
            ),
        ),
    ),
    (
        "Bounds",
        (
            ("drain_seconds", "At shutdown, calls in flight get this long to finish."),
            ("max_connections", ""),
            ("max_connections_per_ip", "Loopback is not counted."),
            ("max_body_kib", "The largest request."),
        ),
    ),
)

SERVERS: Final = """
# ── What is served ──────────────────────────────────────────────────────────────────────────────
# The first server is at /mcp, further ones at /NAME/mcp.

[[server]]
name = "main"
title = "Ostiary demo"
instructions = ""
# Of this server alone: whether callers log in ("none": nobody does), which credentials it takes, tokens for machines, what callers see who
# have no selection of their own, whether tools that move money are offered, and what a tool is of which nobody said anything.
# auth          = "oauth"
# accepts       = ["login", "api-key", "basic"]
# tokens        = [{ name = "ci", token = "env:CI_TOKEN", scope = "mcp:tools", tools = "readonly" }]
# default_tools = "all,-delete"
# financial     = true
# unclassified  = "financial"
# What a call of any of its tools costs: docs/prices.md. Somebody can pay once there is [payments], below; then also strangers,
# with anonymous_pay = true here.
# price         = "$0.01"

# Tools: "read", "write" or "financial", or not offered at all; what one costs, and how often a caller may call it. And groups of them.
# [server.tools.delete]
# tier = "write"
# enabled = false
# [server.tools.search]
# price = { expression = "0.01 + 0.002 * len(query)", most = "$0.05" }
# trial = 3
# limit = "60/min"
# quota = "1000/day"
# [server.groups]
# search = ["find_*"]

# Rules in front of tools, hooks, what is blotted out of answers, calls that are confirmed: docs/policy.md.
# [[server.policy]]
# tools = ["delete_*"]
# decision = "ask"
# reason = "what is deleted is gone"

[[server.agent]]
kind = "demo"

# An agent behind an HTTP chat endpoint: POST {agent, messages, session_id, stream: false} → {text} or {message: {content}}
# [[server.agent]]
# kind = "chat"
# url = "http://127.0.0.1:3000/api/chat"

# Any OpenAI-compatible API. Keys are references, never written here: "env:NAME" or "file:/path".
# [[server.agent]]
# kind = "openai"
# base_url = "http://127.0.0.1:11434/v1"
# model = "llama3.2"
# api_key = "env:OPENAI_API_KEY"

# Functions of a Python file, which runs in a process of your own interpreter.
# [[server.agent]]
# kind = "python"
# file = "agent.py"

# How often callers may ask, and how many calls a day they have: docs/limits.md. These are the defaults.
# [limits]
# address       = "600/min"
# caller        = "1200/min"
# calls_at_once = 256

# Whose certificates `domain` gets, if not Let's Encrypt's: docs/deploy.md.
# [acme]
# directory = "https://acme.example.org/directory"
# contact = ["mailto:ann@example.org"]
# eab_key_id = "kid-1"
# eab_key = "env:ACME_EAB_KEY"

# Where traces and metrics are sent, over OTLP: docs/telemetry.md.
# [telemetry]
# otlp = "http://127.0.0.1:4318"
# headers = { authorization = "Bearer env:OTLP_KEY" }
# traces = 0.05
# metrics_seconds = 60

# [payments]
# pay_to = "0x…"
# networks = ["base-sepolia"]
# [[payments.facilitator]]
# url = "https://x402.org/facilitator"

# [[plan]]
# name = "pro"
# words = "A thousand calls a month"
# calls = 1000

# A scope of your own, which people are asked for in these words. A tool wants it by scope = "pages:delete" in its [server.tools.NAME].
# [[scope]]
# name = "pages:delete"
# description = "Delete pages"
# financial = false

# ── Signing in with somebody else's word ────────────────────────────────────────────────────────
# People who are listed may sign in to the pages at a provider. Register this address there:
# ISSUER/signin/with/NAME/callback. Subjects are the provider's: a `sub`, or "email:…" that it has verified; at GitHub
# the account's number, or "login:…", which its owner can give up and somebody else take.

# [[upstream]]
# name = "github"
# kind = "github"
# client_id = "Iv1.0123456789abcdef"
# client_secret = "env:GITHUB_SECRET"
# allow = [{ subject = "583231", user = "alice" }]

# [[upstream]]
# name = "work"
# kind = "oidc"
# label = "Example Ltd"
# issuer = "https://login.example.org"
# client_id = "ostiary"
# client_secret = "file:/run/secrets/oidc"
# allow = [{ subject = "email:bob@example.org", user = "bob" }]
# assertions = true  # programs may bring its word for these people instead of asking them (enterprise-managed authorization)
"""


def commented_configuration() -> str:
    defaults = {field.name: field.default for field in msgspec.structs.fields(Config)}
    lines = [
        "# Ostiary's settings. A setting that is commented out has the value shown.",
        "# Each can also be given as an environment variable (OSTIARY_PORT) or a flag (--port); the flag wins.",
    ]
    for heading, settings in SECTIONS:
        lines += ["", f"# ── {heading} ".ljust(100, "─"), ""]
        for key, comment in settings:
            if comment:
                lines.append(f"# {comment}")
            lines.append(f"# {key} = {_toml(defaults[key])}")
    return "\n".join(lines) + "\n" + SERVERS


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[]"
    return str(value)
