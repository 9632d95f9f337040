"""What a client may send along with the methods of tasks, in each of their faces.

One row of method_table.py decodes for all faces: two of them say `taskId`, the third `id`.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from server.mcp.errors import BadParams
from server.mcp.method_params import Params


class TaskParams(Params, frozen=True, kw_only=True, rename="camel"):
    """tasks/get, tasks/cancel, tasks/result."""

    task_id: str | UnsetType = UNSET
    id: str | UnsetType = UNSET

    @property
    def named(self) -> str:
        """Raises `BadParams`."""
        return _named(self.task_id, "taskId")


class TaskUpdateParams(Params, frozen=True, kw_only=True, rename="camel"):
    task_id: str
    input_responses: dict[str, Any]


class TaskListParams(Params, frozen=True, kw_only=True, rename="camel"):
    cursor: str | None = None


class TaskCreateParams(Params, frozen=True, kw_only=True, rename="camel"):
    name: str
    arguments: dict[str, Any] | None = None


class TaskRespondParams(Params, frozen=True, kw_only=True, rename="camel"):
    id: str
    response: Any = ""


def wasmagent_id(params: TaskParams) -> str:
    """Raises `BadParams`."""
    return _named(params.id, "id")


def _named(value: str | UnsetType, name: str) -> str:
    if value is UNSET or not value:
        raise BadParams(f"'{name}' must be a non-empty string")
    return value
