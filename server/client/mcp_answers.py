"""The answers of an MCP server, read for a person: who it is, why it refuses, what went wrong, how much it wants to be paid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from server.client.client_errors import BadAnswer, CallRefused, ClientError
from server.client.mcp_session.agreement import Agreement
from server.client.mcp_session.followed_tasks import TaskCancelled
from server.client.mcp_session.session_messages import (
    INTERNAL_ERROR,
    MISSING_CAPABILITY,
    ServerFailure,
    ServerGone,
    ServerRefusal,
    members,
)
from server.client.server_info import ServerInfo
from server.lib.json_objects import mapping
from server.lib.oauth_client.addresses import host_of
from server.mcp.call_failures import BackendError
from server.mcp.versions import TASKS_EXTENSION

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall

# As much of what a server says of itself as anybody reads.
MAX_WORDS: Final = 8_000
MAX_TASK_ID: Final = 4096
SHOWN_AGAIN: Final = "make the same call again: it shows the same payment, and pays no second time"


async def paying(request: Callable[[], Awaitable[Raw]], paid: PaidCall) -> Raw:
    """Return the first answer that asks for no money. The request is sent at most twice, for a payment that went along is the only one."""
    while True:
        try:
            raw = await request()
        except CallRefused as refused:
            if not await paid.again_after_error(refused.error):
                raise
            continue
        except ClientError as error:
            if paid.paying:
                error.hint = SHOWN_AGAIN
            raise
        result = members(raw)
        # A task is no answer yet.
        if result.get("resultType") == "task" or not await paid.again(result):
            return raw


def info_of(agreed: Agreement) -> ServerInfo:
    """Return what a server has said of itself, cut to what anybody reads."""

    def text(name: str, most: int) -> str:
        value = agreed.info.get(name)
        return value[:most] if isinstance(value, str) else ""

    return ServerInfo(
        era="modern" if agreed.modern else "legacy",
        version=agreed.version,
        name=text("name", 200),
        title=text("title", 200),
        server_version=text("version", 100),
        description=text("description", MAX_WORDS),
        instructions=agreed.instructions,
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


@contextmanager
def told(url: str, method: str) -> Generator[None]:
    """Turn what goes wrong in a session into what a person is told: a `ClientError`."""
    try:
        yield
    except ClientError:  # some are `BackendError`s as well
        raise
    except ServerRefusal as refusal:
        error = {"code": refusal.code, "message": str(refusal), "data": refusal.data}
        raise refused(error, method) from None
    except TaskCancelled as failure:
        raise CallRefused(f"{host_of(url)} {failure}", code=0) from None
    except ServerGone as failure:
        raise BadAnswer(f"{host_of(url)} {failure}", hint="the call may have been carried out") from None
    except ServerFailure as failure:
        raise bad_answer(url, str(failure)) from None
    except BackendError as failure:
        raise CallRefused(f"{method}: {failure}", code=0) from None


def bad_answer(url: str, text: str) -> BadAnswer:
    over_http = url.startswith("http")
    hint = f"is this an MCP server? `ostiary doctor {quote(url)}` looks closer" if over_http else None
    return BadAnswer(f"{host_of(url)} {text}", hint=hint)


def needs_task(error: CallRefused) -> bool:
    """Return whether the server refused a call because it runs as a task alone."""
    required = mapping(mapping(error.error.get("data")).get("requiredCapabilities"))
    wanted = set(mapping(required.get("extensions")))
    return error.code == MISSING_CAPABILITY and wanted == {TASKS_EXTENSION}


def always_a_task(tool: Mapping[str, Any]) -> bool:
    """Return whether the tool says that its calls are tasks (2025-11-25)."""
    return mapping(tool.get("execution")).get("taskSupport") == "required"


def task_id_of(result: Mapping[str, Any]) -> str | None:
    """Return the id of the task that an answer to tools/call is, in either form; None for a result. Raises `BadAnswer`."""
    found = result if result.get("resultType") == "task" else mapping(result.get("task"))
    if not found:
        return None
    task_id = found.get("taskId")
    if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_TASK_ID:
        raise BadAnswer("the server began a task that has no id")
    return task_id
