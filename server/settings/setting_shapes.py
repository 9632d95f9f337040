"""Every setting with its rule and its default: those of the process, and those of a `[[server]]`.

A description is what an error tells the reader to write instead; without one, the type and its bounds say it.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from server.settings.limit_settings import ServerLimitsConfig
from server.settings.money_settings import PRICE, PriceValue
from server.settings.policy_settings import Accepted, TokenConfig, ToolConfig
from server.settings.rule_settings import MOST_RULES, HooksConfig, PolicyMode, RedactConfig, RuleConfig

_NO_HOOKS: Final = HooksConfig()
_NOT_REDACTED: Final = RedactConfig()
# Where pages and endpoints of our own are, nothing ends so. As it comes in a request: nothing of it is ever escaped.
OWN_PATH: Final = r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,63}){0,7}/mcp$"


ToolName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    host: Annotated[
        str, Meta(min_length=1, max_length=255, description='an address to listen on, e.g. "127.0.0.1"')
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="a port from 0 to 65535; 0 picks a free one")] = (
        8420
    )
    issuer: Annotated[
        str,
        Meta(
            max_length=2048,
            description='the public address, e.g. "https://agent.example.org", without a path',
        ),
    ] = ""
    allowed_hosts: Annotated[tuple[str, ...], Meta(max_length=64, description="a list of host names")] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(max_length=64, description='a list of web origins that may call from a page, or ["*"]'),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], Meta(max_length=64, description='a list of networks, e.g. ["10.0.0.0/8"]')
    ] = ()
    tls_certificate: Annotated[str, Meta(description="the path of a PEM certificate chain")] = ""
    tls_key: Annotated[str, Meta(description="the path of its PEM private key")] = ""
    domain: Annotated[
        tuple[str, ...], Meta(max_length=100, description='host names, e.g. "agent.example.org"')
    ] = ()
    accept_terms: bool = False
    http_port: Annotated[
        int, Meta(ge=-1, le=65535, description="a port, usually 80, 0 for a free one, or -1 for none")
    ] = -1
    allow_insecure_http: bool = False
    data_dir: Annotated[str, Meta(description="the path of a directory for the database and keys")] = ""
    key_file: Annotated[str, Meta(description='a path, "file:/path" or "env:NAME"')] = ""
    store: Annotated[
        str,
        Meta(description='a reference to the address of a PostgreSQL database, "env:NAME" or "file:/path"'),
    ] = ""
    store_ca: Annotated[str, Meta(description="the path of PEM certificates")] = ""
    store_readers: Annotated[int, Meta(ge=1, le=64)] = 2
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | Literal["auto"],
        Meta(description='a number from 1 to 64, or "auto"'),
    ] = 1
    backup_hours: Annotated[int, Meta(ge=0, le=8760, description="hours from 0 to 8760")] = 0
    backup_keep: Annotated[int, Meta(ge=1, le=1000)] = 7
    backup_dir: Annotated[str, Meta(description="the path of a directory for back-ups")] = ""
    programs_run_as: Annotated[str, Meta(max_length=64, description="the name or number of a user")] = ""
    auth: Literal["oauth", "none"] = "oauth"
    access_token_minutes: Annotated[int, Meta(ge=10, le=1440, description="minutes from 10 to 1440")] = 60
    login_days: Annotated[int, Meta(ge=1, le=365, description="days from 1 to 365")] = 30
    browser_login_days: Annotated[int, Meta(ge=1, le=365, description="days from 1 to 365")] = 90
    device_code_minutes: Annotated[int, Meta(ge=1, le=15, description="minutes from 1 to 15")] = 10
    device_approval: Literal["anywhere", "same-network", "terminal"] = "anywhere"
    registration: Literal["open", "token", "off"] = "open"
    registration_token: Annotated[str, Meta(description='a reference, "env:NAME" or "file:/path"')] = ""
    client_documents: Literal["on", "pinned", "off"] = "on"
    client_document_hosts: Annotated[
        tuple[str, ...], Meta(max_length=64, description="a list of host names")
    ] = ()
    try_page: Literal["owners", "people", "off"] = "owners"
    signing_key_days: Annotated[int, Meta(ge=2, le=3650, description="days from 2 to 3650")] = 90
    call_days: Annotated[int, Meta(ge=1, le=3650, description="days from 1 to 3650")] = 30
    call_rows: Annotated[int, Meta(ge=1_000, le=100_000_000)] = 1_000_000
    admin_port: Annotated[
        int, Meta(ge=-1, le=65535, description="a port, 0 for a free one, or -1 for none")
    ] = -1
    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    drain_seconds: Annotated[float, Meta(ge=0, le=600, description="seconds from 0 to 600")] = 10.0
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 4096
    max_connections_per_ip: Annotated[int, Meta(ge=1, le=100_000)] = 256
    max_body_kib: Annotated[int, Meta(ge=1, le=65536, description="KiB from 1 to 65536")] = 2048
    security_contact: Annotated[
        tuple[str, ...],
        Meta(max_length=8, description='a list of addresses, e.g. ["mailto:security@example.org"]'),
    ] = ()
    releases: Annotated[
        str,
        Meta(max_length=2048, description='an https address, e.g. "https://example.org/ostiary/latest.json"'),
    ] = ""


class Compat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expectations of older clients that a server meets."""

    # None: a result that a model can learn from
    invalid_arguments: Literal[-32602] | None = None
    # which form tasks have in the handshake era
    tasks: Literal["core", "wasmagent"] = "core"
    # wasmagent: then a call goes on as a task
    sync_timeout_seconds: Annotated[float, Meta(ge=0, le=3600, description="seconds up to 3600")] = 25.0
    sessions: Literal["offered", "required", "none"] = "offered"
    # arrays in every revision of the handshake era, not only in 2025-03-26
    batch: bool = False
    # the newest revision that is spoken: a server that pretends to be older
    protocol_version: Annotated[
        Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] | None,
        Meta(description='a version, e.g. "2025-03-26"'),
    ] = None
    # the two-endpoint transport of 2024-11-05
    sse: bool = False


class IconConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A picture of the server, for clients that show one."""

    src: Annotated[str, Meta(pattern="^(https://|data:image/)", max_length=65536)]
    mime_type: Annotated[str, Meta(max_length=100)] = ""
    sizes: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    theme: Literal["light", "dark"] | None = None


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[server]]`: a name, what it says of itself, and the agents behind it."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
            description="lower-case letters, digits and dashes, at most 40",
        ),
    ] = "main"
    title: Annotated[str, Meta(max_length=100, description="a short title")] = ""
    version: Annotated[str, Meta(max_length=100, description='its own version, e.g. "2.1"')] = ""
    path: Annotated[
        str,
        Meta(
            max_length=200,
            pattern=f"^$|{OWN_PATH}",
            description='where it is, a path that ends in /mcp, e.g. "/api/mcp"',
        ),
    ] = ""
    aliases: Annotated[
        tuple[Annotated[str, Meta(max_length=200, pattern=OWN_PATH)], ...],
        Meta(max_length=16, description='further paths that end in /mcp, e.g. ["/api/mcp"]'),
    ] = ()
    instructions: Annotated[
        str, Meta(max_length=8000, description="what a model should know before it calls")
    ] = ""
    description: Annotated[str, Meta(max_length=1000, description="a sentence on what it is for")] = ""
    website: Annotated[
        str, Meta(pattern="^$|^https?://", max_length=2048, description="an http or https address")
    ] = ""
    icons: Annotated[
        tuple[IconConfig, ...], Meta(max_length=8, description='a list of { src = "https://…" }')
    ] = ()
    page_size: Annotated[int, Meta(ge=1, le=10_000, description="how many entries a page of a list has")] = (
        200
    )
    task_hours: Annotated[float, Meta(gt=0, le=720, description="hours up to 720")] = 24.0
    compat: Annotated[Compat, Meta(description='a table, e.g. { tasks = "wasmagent" }, or nothing')] = (
        Compat()
    )
    # who may call: None, as the settings say for all
    auth: Literal["oauth", "none"] | None = None
    accepts: Annotated[
        tuple[Accepted, ...],
        Meta(min_length=1, max_length=3, description='some of "login", "api-key", "basic"'),
    ] = ("login", "api-key", "basic")
    tokens: Annotated[
        tuple[TokenConfig, ...],
        Meta(max_length=64, description='a list of { name = "ci", token = "env:NAME", scope = "mcp:tools" }'),
    ] = ()
    # tools of our own: true, or the name that they are to have
    getting_started: Annotated[bool | ToolName, Meta(description='true, false, or a name, e.g. "guide"')] = (
        False
    )
    read_resource: Annotated[bool | ToolName, Meta(description='true, false, or a name, e.g. "fetch"')] = (
        False
    )
    # how callers get to know of them
    discovery: Annotated[Literal["list", "search"], Meta(description='"list" or "search"')] = "list"
    # by which names they can be called besides
    old_names: Annotated[
        dict[str, Annotated[str, Meta(min_length=1, max_length=128)]],
        Meta(max_length=1000, description='a table, e.g. { "notes.*" = "notes__*" }'),
    ] = {}
    old_names_until: Annotated[date | None, Meta(description="a day, e.g. 2027-01-31")] = None
    # who is asked nothing, for these tools alone
    anonymous_tools: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.*-]+$")], ...],
        Meta(max_length=1000, description='tools that need no login, e.g. ["search", "find_*"]'),
    ] = ()
    # what they may do
    tools: Annotated[
        dict[str, ToolConfig], Meta(max_length=10_000, description="tables, [server.tools.NAME]")
    ] = {}
    expose: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...],
        Meta(max_length=10_000, description='the only tools that are offered, e.g. ["search"]'),
    ] = ()
    groups: Annotated[
        dict[str, Annotated[tuple[str, ...], Meta(max_length=1000)]],
        Meta(max_length=100, description='names with lists of tools, e.g. search = ["find_*"]'),
    ] = {}
    default_tools: Annotated[
        str, Meta(max_length=2048, description='a selection of tools, e.g. "all,-delete"')
    ] = ""
    financial: bool = False
    unclassified: Literal["write", "financial"] = "write"
    limits: Annotated[
        ServerLimitsConfig, Meta(description='a table, e.g. { caller = "120/min" }, or nothing')
    ] = ServerLimitsConfig()
    # what stands in front of them
    policy: Annotated[
        tuple[RuleConfig, ...],
        Meta(max_length=MOST_RULES, description="tables, [[server.policy]] with tools and decision"),
    ] = ()
    policy_mode: Annotated[PolicyMode, Meta(description='"enforce", "audit" or "dry_run"')] = "enforce"
    hooks: Annotated[
        HooksConfig,
        Meta(description='a table with before and after, e.g. { file = "hooks.py", function = "before" }'),
    ] = HooksConfig()
    redact: Annotated[RedactConfig, Meta(description='a table, e.g. { sets = ["emails"] }')] = RedactConfig()
    # what they cost, and who may pay
    price: Annotated[PriceValue | None, Meta(description=PRICE)] = None
    anonymous_pay: bool = False
    x402_extension: bool = False
    agents: tuple[msgspec.Struct, ...] = ()

    @property
    def governed(self) -> bool:
        """Return whether anything stands in front of its tools."""
        if self.policy or self.hooks != _NO_HOOKS or self.redact != _NOT_REDACTED:
            return True
        return any(tool.redact != _NOT_REDACTED or tool.confirm is not None for tool in self.tools.values())
