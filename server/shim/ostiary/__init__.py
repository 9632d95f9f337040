"""What an author's file imports. The functions that it decorates are tools, resources and prompts of the server.

from ostiary import tool

@tool
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b
"""

from __future__ import annotations

from .content import Audio, Content, Embedded, Image, Link, Message, Progress, Result, Text, assistant, user
from .context import Context, SyncContext
from .errors import Cancelled, CannotAsk, Misuse, NotAnswered, NotFound, ProtocolError, ToolFailure
from .param import Param
from .questions import Elicited, Root, Sampled, elicitation, elicitation_url, roots, sampling
from .registry import (
    add_prompt,
    add_resource,
    add_tool,
    completion,
    price,
    prompt,
    remove_prompt,
    remove_resource,
    remove_tool,
    resource,
    tool,
    updated,
)

__all__ = [
    "Audio",
    "Cancelled",
    "CannotAsk",
    "Content",
    "Context",
    "Elicited",
    "Embedded",
    "Image",
    "Link",
    "Message",
    "Misuse",
    "NotAnswered",
    "NotFound",
    "Param",
    "Progress",
    "ProtocolError",
    "Result",
    "Root",
    "Sampled",
    "SyncContext",
    "Text",
    "ToolFailure",
    "add_prompt",
    "add_resource",
    "add_tool",
    "assistant",
    "completion",
    "elicitation",
    "elicitation_url",
    "price",
    "prompt",
    "remove_prompt",
    "remove_resource",
    "remove_tool",
    "resource",
    "roots",
    "sampling",
    "tool",
    "updated",
    "user",
]
