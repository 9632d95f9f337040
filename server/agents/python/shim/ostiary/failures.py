"""What a caller is told when a function raises. Tracebacks go to the log, never to the caller.

What an exception says that nobody expected may hold anything: an address with a password in it, a row of somebody else's. So of such a
one the caller is told its class alone, unless the file says otherwise. What is raised on purpose (errors.py) is told as it is.
"""

from __future__ import annotations

import json
import os
import sys
from types import TracebackType
from typing import Any

from .answers import failure
from .errors import CannotAsk, CannotUse, NotFound, ProtocolError, ToolFailure, Unfit
from .hints import loaded
from .pipe import LineTooLong

Event = dict[str, Any]

# A message for a model to read, not a dump.
LONGEST_TEXT = 2000
LONGEST_TRACE = 20_000
CANCELLED: Event = {"event": "error", "kind": "cancelled", "message": "cancelled"}
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# What turns an answer into JSON.
_WRITERS = (os.path.dirname(json.__file__),)
# Where the author's functions are called: what these raise by themselves is an author's, without a frame of its own.
_CALLS_THEIRS = frozenset(
    {
        "_in_thread", "_settled", "_in_loop", "whole", "whole_here", "_collected", "_gathered", "run_here", "_run_here",
        "_provided_here", "_before", "_go_on", "_run", "_provided", "_enter",
    }
)  # fmt: skip
_UNFIT = {
    "read": "not_found",
    "prompt": "bad_arguments",
    "complete": "bad_arguments",
    "price": "bad_arguments",
}


def event_of(error: BaseException, kind: str, *, call_id: str = "", shown: bool = False) -> Event:
    """How a call of this kind ends; an unexpected error is logged. `shown`: the caller is told what it says."""
    error = _innermost(error)
    text = str(error) or type(error).__name__
    if isinstance(error, ToolFailure):
        return {"event": "final", "result": failure(text)} if kind == "tool" else _error("failed", text)
    if isinstance(error, Unfit):
        text = f"wrong argument: {text}"
        return {"event": "final", "result": failure(text)} if kind == "tool" else _error(_UNFIT[kind], text)
    if isinstance(error, ProtocolError):
        return {**_error("protocol", text), "code": error.code, "data": error.data}
    if isinstance(error, CannotAsk):
        return _error("refused", text)
    if isinstance(error, CannotUse):
        return (
            {"event": "final", "result": failure(_bounded(text))}
            if kind == "tool"
            else _error("failed", text)
        )
    if isinstance(error, NotFound) and kind == "read":
        return _error("not_found", str(error))  # without a text, the server has one
    if isinstance(error, NotFound):
        return _error("failed", str(error) or "there is no such thing")
    log(error, call_id)
    if isinstance(error, LineTooLong):
        return _error("failed", text)
    if shown or _says_what_we_say(error):
        return _error("failed", described(error))
    there = f", under {call_id}" if call_id else ""
    return _error("failed", f"{type(error).__name__}: what went wrong is in the server's log{there}")


def described(error: BaseException) -> str:
    text = str(error).strip()
    name = type(error).__name__
    return _bounded(f"{name}: {text}" if text else name)


def _says_what_we_say(error: BaseException) -> bool:
    """Whether it was raised by this package, and not by the author's code or what that uses: to say how the package is used."""
    trace, ours = error.__traceback__, False
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(_HERE):
            ours = code.co_name not in _CALLS_THEIRS
        elif not os.path.dirname(code.co_filename).startswith(_WRITERS):
            ours = False
        trace = trace.tb_next
    return ours


def log(error: BaseException, call_id: str = "") -> None:
    """The traceback, from where the author's code begins, as one piece."""
    import traceback

    text = "".join(traceback.format_exception(type(error), error, without_us(error.__traceback__)))
    if len(text) > LONGEST_TRACE:
        text = text[: LONGEST_TRACE // 2] + "\n…\n" + text[-LONGEST_TRACE // 2 :]
    sys.stderr.write(f"in {call_id}: {text}" if call_id else text)
    sys.stderr.flush()


def without_us(trace: TracebackType | None) -> TracebackType | None:
    """From the first frame that is not of this package; all of it, if there is none."""
    frame = trace
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_HERE):
        frame = frame.tb_next
    return frame or trace


def _innermost(error: BaseException) -> BaseException:
    """Task groups wrap what a task raised; a single cause is what the author means."""
    while True:
        group = loaded("builtins", "BaseExceptionGroup") or loaded("exceptiongroup", "BaseExceptionGroup")
        inner: Any = error  # no type that 3.9 has
        if group is None or not isinstance(error, group) or len(inner.exceptions) != 1:
            return error
        error = inner.exceptions[0]


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _error(kind: str, text: str) -> Event:
    return {"event": "error", "kind": kind, "message": _bounded(text)}
