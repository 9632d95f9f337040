"""The commented `ostiary.toml` that `ostiary init` writes: every setting with its default, in the order people need them."""

from __future__ import annotations

from typing import Final

import msgspec

from server.settings.plain_settings import PLAIN_SETTINGS
from server.settings.setting_shapes import Config

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
    for heading, settings in PLAIN_SETTINGS.items():
        lines += ["", f"# ── {heading} ".ljust(100, "─"), ""]
        for key, _, text in settings:
            default = _toml(defaults[key])
            words = text.removesuffix(f" ({str(defaults[key]).removesuffix('.0')})")
            lines += [f"# {words[0].upper()}{words[1:]}.", f"# {key} = {default}"]
    return "\n".join(lines) + "\n" + SERVERS


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[]"
    return str(value)
