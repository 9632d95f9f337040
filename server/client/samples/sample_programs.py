"""Programs that call one tool, to be copied and run: curl without any session, and the official SDKs of Python and TypeScript.

Names, words and arguments are somebody else's. Each is put into a program as a literal of its language, in ASCII, and nowhere else; in a
comment it is one line. A token is never written into a program: it comes from a variable of the environment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from server.mcp.request_headers import header_value, parameter_headers

TOKEN_VARIABLE: Final = "OSTIARY_TOKEN"
REVISION: Final = "2026-07-28"
_META: Final = "io.modelcontextprotocol"
# What a comment says of a tool.
MAX_COMMENT: Final = 100

Language: TypeAlias = Literal["curl", "python", "ts"]


class SampleCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a program is to do. `tool` is an entry of a list of tools."""

    url: str
    tool: Mapping[str, Any]
    arguments: Mapping[str, Any]
    with_token: bool = True

    @property
    def name(self) -> str:
        return str(self.tool.get("name"))


def curl(call: SampleCall) -> str:
    """One POST of 2026-07-28: no handshake, no session. The token goes by a pipe, for a command line can be read by others."""
    params: dict[str, Any] = {
        "name": call.name,
        "arguments": dict(call.arguments),
        "_meta": {
            f"{_META}/protocolVersion": REVISION,
            f"{_META}/clientInfo": {"name": "curl", "version": "1"},
            f"{_META}/clientCapabilities": {},
        },
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": header_value(call.name),
        **parameter_headers(call.tool.get("inputSchema"), call.arguments),
    }
    lines = [f"curl --silent --show-error {shell_word(call.url)}"]
    if call.with_token:
        lines.append("--header @-")
    lines += [f"--header {shell_word(f'{name}: {value}')}" for name, value in headers.items()]
    lines.append(f"--data-binary {shell_word(_json(body))}")
    told = "".join(f"# {line}\n" for line in _said(call))
    pipe = f"printf 'Authorization: Bearer %s\\n' \"${TOKEN_VARIABLE}\" |\n" if call.with_token else ""
    return told + pipe + " \\\n  ".join(lines) + "\n"


def python(call: SampleCall) -> str:
    """With the package `mcp`."""
    token = (
        f'    headers = {{"Authorization": "Bearer " + os.environ["{TOKEN_VARIABLE}"]}}\n'
        if call.with_token
        else "    headers = {}\n"
    )
    told = "".join(f"# {line}\n" for line in _said(call))
    imports = "import asyncio\n" + ("import os\n" if call.with_token else "")
    return f"""{told}# needs: pip install mcp
{imports}
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = {_python_literal(call.url)}
TOOL = {_python_literal(call.name)}
ARGUMENTS = {_python_literal(dict(call.arguments))}


async def main() -> None:
{token}    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(URL, http_client=http)) as client,
    ):
        result = await client.call_tool(TOOL, ARGUMENTS)
    for block in result.content:
        print(block.text if block.type == "text" else block.type)
    if result.is_error:
        raise SystemExit(1)


asyncio.run(main())
"""


def typescript(call: SampleCall) -> str:
    """With the package `@modelcontextprotocol/client`. No types are written down, so that it is JavaScript as well."""
    options = (
        f"{{\n  requestInit: {{ headers: {{ Authorization: `Bearer ${{process.env.{TOKEN_VARIABLE}}}` }} }},\n}}"
        if call.with_token
        else "{}"
    )
    told = "".join(f"// {line}\n" for line in _said(call))
    return f"""{told}// needs: npm install @modelcontextprotocol/client
import {{ Client, StreamableHTTPClientTransport }} from "@modelcontextprotocol/client";

const url = {_json(call.url)};
const tool = {_json(call.name)};
const args = {_script_literal(dict(call.arguments))};

const transport = new StreamableHTTPClientTransport(new URL(url), {options});
const client = new Client({{ name: "snippet", version: "1.0.0" }}, {{ versionNegotiation: {{ mode: "auto" }} }});
await client.connect(transport);
const result = await client.callTool({{ name: tool, arguments: args }});
for (const block of result.content) console.log(block.type === "text" ? block.text : block.type);
await client.close();
if (result.isError) process.exit(1);
"""


PROGRAMS: Final[Mapping[Language, Callable[[SampleCall], str]]] = MappingProxyType(
    {"curl": curl, "python": python, "ts": typescript}
)


# ── quoting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def shell_word(text: str) -> str:
    """One word of a POSIX shell, whatever is in it but a NUL, which no word can have."""
    quoted = text.replace("\0", "").replace("'", "'\\''")
    return f"'{quoted}'"


def comment(text: str) -> str:
    """One line of ASCII."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text[: MAX_COMMENT * 4]).split())
    plain = words.encode("ascii", "backslashreplace").decode()
    return plain if len(plain) <= MAX_COMMENT else plain[: MAX_COMMENT - 3] + "..."


def _said(call: SampleCall) -> list[str]:
    described = call.tool.get("description")
    words = comment(described) if isinstance(described, str) else ""
    lines = [f"Calls {comment(call.name)}." + (f" It says of itself: {words}" if words else "")]
    if call.with_token:
        lines.append(f"{TOKEN_VARIABLE} holds an access token or an API key.")
    return lines


def _json(value: Any) -> str:
    return json.dumps(_finite(value), indent=2, ensure_ascii=True)


def _script_literal(value: Any) -> str:
    """Of JavaScript, where a member of this name alone would be something else than in JSON."""
    text = _json(value)
    return f"JSON.parse({json.dumps(text, ensure_ascii=True)})" if "__proto__" in text else text


def _python_literal(value: Any, indent: int = 0) -> str:
    inner, outer = " " * (indent + 4), " " * indent
    match value:
        case dict() if value:
            pairs = cast("dict[Any, Any]", value).items()
            lines = [f"{inner}{str(key)!a}: {_python_literal(each, indent + 4)},\n" for key, each in pairs]
            return "{\n" + "".join(lines) + outer + "}"
        case list() if value:
            each = cast("list[Any]", value)
            return (
                "[\n" + "".join(f"{inner}{_python_literal(one, indent + 4)},\n" for one in each) + outer + "]"
            )
        case str():
            return ascii(str(value))
        case bool() | int() | None:
            return repr(value)
        case float():
            return repr(value) if math.isfinite(value) else "0.0"
        case dict():
            return "{}"
        case _:
            return "[]"


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    match value:
        case float() if not math.isfinite(value):
            return 0.0
        case dict():
            return {str(key): _finite(each) for key, each in cast("dict[Any, Any]", value).items()}
        case list():
            return [_finite(each) for each in cast("list[Any]", value)]
        case _:
            return value
