"""The words that an author's file imports. The functions that it decorates are tools, resources and prompts of the server.

from ostiary import tool

@tool
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b
"""

from __future__ import annotations

from .caller import Claims, Client, State
from .content import (
    Audio,
    Content,
    Embedded,
    File,
    Image,
    Link,
    Message,
    Progress,
    Result,
    Text,
    assistant,
    user,
)
from .context import Context, SyncContext
from .errors import Cancelled, CannotAsk, CannotUse, Misuse, NotAnswered, NotFound, ProtocolError, ToolFailure
from .file import around, before_call, defaults, include, lifespan
from .hooks import Proceed, ToolUse
from .page import Page
from .param import Param
from .provide import Provide
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
from .uses import Answer, Part

__all__ = [
    "Answer",
    "Audio",
    "Cancelled",
    "CannotAsk",
    "CannotUse",
    "Claims",
    "Client",
    "Content",
    "Context",
    "Elicited",
    "Embedded",
    "File",
    "Image",
    "Link",
    "Message",
    "Misuse",
    "NotAnswered",
    "NotFound",
    "Page",
    "Param",
    "Part",
    "Proceed",
    "Progress",
    "ProtocolError",
    "Provide",
    "Result",
    "Root",
    "Sampled",
    "State",
    "SyncContext",
    "Text",
    "ToolFailure",
    "ToolUse",
    "add_prompt",
    "add_resource",
    "add_tool",
    "around",
    "assistant",
    "before_call",
    "completion",
    "defaults",
    "elicitation",
    "elicitation_url",
    "include",
    "lifespan",
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
