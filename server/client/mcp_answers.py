"""What the answers of an MCP server say: who it is, why it refuses, what it wants to be paid. For mcp_client.py, which asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from server.client.client_errors import CallRefused, ClientError
from server.client.server_info import ServerInfo

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall

MISSING_CAPABILITY: Final = -32021
# JSON-RPC: the server tried and failed.
INTERNAL_ERROR: Final = -32603
# As much of what a server says of itself as anybody reads.
MAX_WORDS: Final = 8_000
SHOWN_AGAIN: Final = "make the same call again: it shows the same payment, and pays no second time"


async def paying(request: Callable[[], Awaitable[dict[str, Any]]], paid: PaidCall) -> dict[str, Any]:
    """The first answer that asks for no money. It is sent at most twice, for a payment that went along is the only one."""
    while True:
        try:
            result = await request()
        except CallRefused as refused:
            if not await paid.again_after_error(refused.error):
                raise
            continue
        except ClientError as error:
            if paid.paying:
                error.hint = SHOWN_AGAIN
            raise
        # A task is no answer yet.
        if result.get("resultType") == "task" or not await paid.again(result):
            return result


def info_of(
    era: Literal["modern", "legacy"], version: str, info: Mapping[str, Any], instructions: Any = None
) -> ServerInfo:
    name, title, server_version = info.get("name"), info.get("title"), info.get("version")
    description = info.get("description")
    return ServerInfo(
        era=era,
        version=version,
        name=name[:200] if isinstance(name, str) else "",
        title=title[:200] if isinstance(title, str) else "",
        server_version=server_version[:100] if isinstance(server_version, str) else "",
        description=description[:MAX_WORDS] if isinstance(description, str) else "",
        instructions=instructions[:MAX_WORDS] if isinstance(instructions, str) else "",
    )


def refused(error: Mapping[str, Any], method: str) -> CallRefused:
    code, message = error.get("code"), error.get("message")
    said = message[:500] if isinstance(message, str) and message else "no reason given"
    number = code if isinstance(code, int) else 0
    if number == INTERNAL_ERROR:  # the reason is its own, or that of the agent behind it
        return CallRefused(f"{method} failed: {said}", code=number, error=error)
    required = mapping(mapping(error.get("data")).get("requiredCapabilities"))
    if number == MISSING_CAPABILITY and "elicitation" in required:
        # A page can only be opened by somebody; a form can be filled in before.
        otherwise = "" if "url" in mapping(required["elicitation"]) else ", or give --answer FIELD=VALUE"
        return CallRefused(
            f"the server refused {method}: {said}",
            code=number,
            hint=f"it has a question for a person: call it on a terminal{otherwise}",
        )
    return CallRefused(f"the server refused {method}: {said}", code=number, error=error)


def mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def strings(value: Any) -> list[str]:
    return (
        [item for item in cast("list[Any]", value) if isinstance(item, str)]
        if isinstance(value, list)
        else []
    )
