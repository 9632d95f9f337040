"""`[[server.agent]]` with `kind = "mcp"`: where an MCP server of somebody else's is, what it is told, and what of it is offered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

from msgspec import Meta

from server.agents.base.agent_wallet import PayConfig, pay_problems
from server.agents.base.child_environment import environment_problems
from server.agents.mcp.forwarded_meta import TRACE_CONTEXT, meta_problems
from server.agents.mcp.upstream_identity import NO_OAUTH, IdentityKind, UpstreamOAuth, identity_problems
from server.lib.http_client.fetch import url_problem
from server.lib.oauth_client.addresses import is_fit
from server.lib.shortened import short_name
from server.mcp.carried_extensions import APPS, OURS
from server.mcp.carried_extensions import NAME as EXTENSION
from server.settings.header_settings import HEADER_NAME, header_problems
from server.settings.program_rights import ProgramRights, given, rights_problems

# Said by us in every message, or about the connection itself.
OWN_HEADERS: Final = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
        "keep-alive", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
    }
)  # fmt: skip
TCP: Final = re.compile(r"(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[1-9][0-9]{0,4}")
TOOL: Final = re.compile(r"!?[A-Za-z0-9_./*?-]{1,128}")
HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|[0-9a-f]*:[0-9a-f:.]{1,45}")
PAGE_HOST: Final = re.compile(r"\*|(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
ADDRESS_CHARACTERS: Final = 200  # of one that its owner is shown
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

PagePermission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
QuestionKind = Literal["elicitation", "sampling", "roots"]
Prefix = Literal["always", "on collision", "never"]
Share = Literal["caller", "all"]


class McpConfig(ProgramRights, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `command`, `url` and `tcp`. Credentials are references here, never values."""

    # where it is
    command: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...],
        Meta(
            max_length=256, description='a program and its arguments, e.g. ["npx", "-y", "some-mcp-server"]'
        ),
    ] = ()
    url: Annotated[
        str,
        Meta(max_length=2048, description='the address of its endpoint, e.g. "https://mcp.example.com/mcp"'),
    ] = ""
    tcp: Annotated[str, Meta(max_length=300, description='a host and a port, e.g. "127.0.0.1:9000"')] = ""
    # a child process
    env: Annotated[
        tuple[str, ...] | Mapping[str, str],
        Meta(description='names of variables to pass on, or a table, e.g. { API_KEY = "env:UPSTREAM_KEY" }'),
    ] = ()
    working_dir: Annotated[str, Meta(max_length=4096, description="the path of a directory")] = ""
    unconfined: Annotated[bool, Meta(description="true or false")] = False
    # over HTTP
    headers: Annotated[
        Mapping[str, str], Meta(description='a table of headers, e.g. { x-api-key = "env:UPSTREAM_KEY" }')
    ] = MappingProxyType({})
    token: Annotated[str, Meta(max_length=4096, description='a reference, "env:NAME" or "file:/path"')] = ""
    ca_file: Annotated[str, Meta(max_length=4096, description="the path of PEM certificates to trust")] = ""
    max_connections: Annotated[int, Meta(ge=1, le=1024, description="a number from 1 to 1024")] = 64
    # as whom it is called there
    identity: Annotated[
        IdentityKind,
        Meta(
            description='"login", "token", "client-credentials", "exchange", "id-jag", "person" or "person-key"'
        ),
    ] = "login"
    oauth: Annotated[
        UpstreamOAuth, Meta(description='a table, e.g. { audience = "https://mcp.example.com" }')
    ] = NO_OAUTH
    key_header: Annotated[str, Meta(max_length=64, description='the name of a header, e.g. "X-Api-Key"')] = (
        "Authorization"
    )
    # what it may be paid, and what is asked for it here
    pay: Annotated[PayConfig, Meta(description="a table, [server.agent.pay]")] = PayConfig()
    mark_up: Annotated[str, Meta(max_length=40, description='a part or an amount, e.g. "20%" or "$0.01"')] = (
        ""
    )
    # how it is spoken to
    connect: Annotated[Literal["start", "lazy"], Meta(description='"start" or "lazy"')] = "start"
    era: Annotated[
        Literal["auto", "stateless", "handshake"], Meta(description='"auto", "stateless" or "handshake"')
    ] = "auto"
    questions: Annotated[
        tuple[QuestionKind, ...],
        Meta(max_length=3, description='some of "elicitation", "sampling", "roots"'),
    ] = ("elicitation", "sampling")
    extensions: Annotated[
        tuple[Annotated[str, Meta(max_length=128)], ...],
        Meta(max_length=8, description='names of extensions, e.g. ["io.modelcontextprotocol/ui"]'),
    ] = (APPS,)
    question_hosts: Annotated[
        tuple[str, ...],
        Meta(max_length=100, description='a list of hosts, e.g. ["accounts.example.com"]'),
    ] = ()
    deadline_seconds: Annotated[float, Meta(ge=1, le=86_400, description="seconds from 1 to 86400")] = 300.0
    start_seconds: Annotated[float, Meta(ge=1, le=600, description="seconds from 1 to 600")] = 30.0
    calls_at_once: Annotated[int, Meta(ge=1, le=10_000, description="a number from 1 to 10000")] = 256
    arguments: Annotated[Literal["upstream", "here"], Meta(description='"upstream" or "here"')] = "upstream"
    message_kib: Annotated[int, Meta(ge=64, le=262_144, description="KiB from 64 to 262144")] = 16_384
    meta: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...],
        Meta(max_length=50, description='keys of a call\'s _meta, e.g. ["traceparent", "example.com/*"]'),
    ] = TRACE_CONTEXT
    # what its pages may do
    page_hosts: Annotated[
        tuple[str, ...] | None,
        Meta(description='a list of hosts, e.g. ["api.example.com", "*.example.com"]'),
    ] = None
    page_permissions: Annotated[
        tuple[PagePermission, ...],
        Meta(max_length=4, description='some of "camera", "microphone", "geolocation", "clipboardWrite"'),
    ] = ()
    # who shares a child or a connection
    share: Annotated[Share, Meta(description='"caller" or "all"')] = "caller"
    callers_at_once: Annotated[int, Meta(ge=1, le=1000, description="a number from 1 to 1000")] = 32
    # what of it is offered, and how it is called
    trust: Annotated[
        Literal["pinned", "first-use", "always"], Meta(description='"pinned", "first-use" or "always"')
    ] = "pinned"
    id: Annotated[
        str,
        Meta(
            pattern=r"^([a-z0-9][a-z0-9_-]{0,31})?$",
            description="at most 32 lower-case letters, digits, dashes and underscores",
        ),
    ] = ""
    prefix: Annotated[Prefix, Meta(description='"always", "on collision" or "never"')] = "always"
    separator: Annotated[Literal[".", "__"], Meta(description='"__" or "."')] = "__"
    max_entries: Annotated[int, Meta(ge=1, le=10_000, description="a number from 1 to 10000")] = 1000
    banner: Annotated[bool, Meta(description="true or false")] = False
    tools: Annotated[
        tuple[str, ...], Meta(max_length=1000, description='a list of tools, e.g. ["read_*", "!read_secret"]')
    ] = ()
    rename: Annotated[
        Mapping[str, str], Meta(max_length=1000, description='a table, e.g. { read_file = "read" }')
    ] = MappingProxyType({})

    def __repr__(self) -> str:  # the environment or a header may hold what should have been a reference
        return f"{type(self).__name__}(id={self.id!r}, over={self.over!r})"

    @property
    def over(self) -> str:
        """The way in which it is reached."""
        return "stdio" if self.command else "tcp" if self.tcp else "http"

    @property
    def gives_way(self) -> bool:
        """The decision that its `id` is in front of the names that another has, and of no others."""
        return self.prefix == "on collision"

    @property
    def front(self) -> str:
        """The text that may be in front of the names of its tools and prompts."""
        return self.id + self.separator if self.id and self.prefix != "never" else ""

    @property
    def sends_authorization(self) -> bool:
        """True if the settings say as whom it is called."""
        return bool(self.token) or any(name.lower() == "authorization" for name in self.headers)

    @property
    def what(self) -> str:
        """The name that its owner knows it by; nothing secret is in it."""
        return self.id or self.place

    @property
    def place(self) -> str:
        """The name of its program, or its address without what may be secret."""
        if self.command:
            return short_name(self.command[0].rpartition("/")[2])
        return self.tcp or self.url.partition("?")[0][:ADDRESS_CHARACTERS]


def problems(config: McpConfig) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold."""
    found = environment_problems(config.env)
    found = [(key.replace("environment", "env", 1), what) for key, what in found]
    ways = [key for key in ("command", "url", "tcp") if getattr(config, key)]
    if not ways:
        found.append(("url", "is missing; write where the server is, or set command or tcp"))
    if len(ways) > 1:
        found.append((ways[1], f"contradicts {ways[0]}; write one of the two"))
    if config.url and (problem := url_problem(config.url)):
        found.append(("url", f"{problem}; write e.g. https://mcp.example.com/mcp"))
    if config.tcp and (not TCP.fullmatch(config.tcp) or int(config.tcp.rpartition(":")[2]) > 65535):
        found.append(("tcp", "is not a host and a port; write e.g. 127.0.0.1:9000"))
    if any("\0" in part for part in config.command):
        found.append(("command", "must not hold a zero byte"))
    if not config.url:
        # Whoever can read the pipe or the wire of such a server is not asked who they are: a credential would only be lost there.
        found += [
            (key, "is for a server at a url: nothing else is sent credentials; leave it out")
            for key in ("token", "headers", "ca_file")
            if getattr(config, key)
        ]
    elif config.share == "all":
        found.append(
            ("share", "is for a command or tcp: over HTTP each caller has a session of its own; leave it out")
        )
    if not config.command:
        found += [
            (key, "is for a server that is a command; leave it out")
            for key in ("env", "working_dir", "unconfined")
            if getattr(config, key)
        ]
        found += [(key, "is for a server that is a command; leave it out") for key in given(config)]
    found += rights_problems(config, unconfined=config.unconfined)
    found += identity_problems(
        config.identity,
        config.oauth,
        url=config.url,
        named=bool(config.id),
        sends_authorization=config.sends_authorization,
    )
    found += [
        ("question_hosts", f"{short_name(host)!r} is no host; write its name alone, in lower case")
        for host in config.question_hosts
        if not HOST.fullmatch(host)
    ]
    found += [
        ("page_hosts", f"{short_name(host)!r} is no host; write its name alone, in lower case, or *.name")
        for host in config.page_hosts or ()
        if not PAGE_HOST.fullmatch(host)
    ]
    found += [
        ("extensions", f"{short_name(name)!r} is no name of an extension; write e.g. {APPS}")
        if not EXTENSION.fullmatch(name)
        else ("extensions", f"{name} is dealt with here, and never goes through; leave it out")
        for name in config.extensions
        if name in OURS or not EXTENSION.fullmatch(name)
    ]
    found += pay_problems(config.pay)
    if config.mark_up:
        found += _mark_up_problems(config)
    return found + meta_problems(config.meta) + _header_problems(config) + _name_problems(config)


def _mark_up_problems(config: McpConfig) -> list[tuple[str, str]]:
    from server.agents.mcp.asked_prices import read_mark_up

    if not config.pay.written:
        return [
            (
                "mark_up",
                "is on what an upstream is paid; write [server.agent.pay], which says what that may be",
            )
        ]
    try:
        read_mark_up(config.mark_up)
    except ValueError as problem:
        return [("mark_up", str(problem))]
    return []


def _header_problems(config: McpConfig) -> list[tuple[str, str]]:
    found = header_problems(config.headers, OWN_HEADERS, {"authorization"} if config.token else frozenset())
    if config.identity == "person-key" and config.url:
        if not HEADER_NAME.fullmatch(config.key_header):
            found.append(("key_header", "is not a header name; write e.g. X-Api-Key"))
        elif config.key_header.lower() in OWN_HEADERS:
            found.append(("key_header", "is set by the server itself; write another"))
        elif url_problem(config.url) is None and not is_fit(config.url):
            found.append(("url", "would be sent keys of people in the open; write an https address"))
    elif config.key_header != "Authorization":
        found.append(("key_header", 'is for identity = "person-key"; leave it out'))
    if config.token and not config.token.startswith(("env:", "file:")):
        found.append(("token", "is not a reference; write env:NAME or file:/path"))
    return found


def _name_problems(config: McpConfig) -> list[tuple[str, str]]:
    found = [
        (
            "tools",
            f"{short_name(word)!r} selects nothing; write names of tools, with * for any characters and ! before what is not",
        )
        for word in config.tools
        if not TOOL.fullmatch(word)
    ]
    found += [
        (f"rename.{short_name(old)}", "is no name of a tool; write 1 to 64 of A-Z a-z 0-9 _ . -")
        for old, new in config.rename.items()
        if not NAME.fullmatch(new)
    ]
    if config.gives_way and not config.id:
        found.append(("prefix", 'is "on collision", and without an id there is nothing to put in front'))
    if len(set(config.rename.values())) < len(config.rename):
        found.append(("rename", "gives two tools the same name"))
    return found
