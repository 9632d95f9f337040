"""What a function may raise so that its caller reads something sensible, and what is raised at an author's mistake.

Of every other exception the caller learns the class; what it says, and its traceback, are in the log (failures.py).
"""

from __future__ import annotations

from typing import Any


class ToolFailure(Exception):
    """The work failed, and the text tells the model why: the answer is an ordinary one that is marked as an error."""


class NotFound(Exception):
    """What a template's variables name does not exist. The caller reads the text, if there is one."""


class ProtocolError(Exception):
    """The caller gets a JSON-RPC error with this code instead of an answer."""

    def __init__(self, message: str, code: int = -32603, data: Any | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class CannotAsk(Exception):
    """The caller's client has no way to answer. Let it pass, and the caller is told what its client lacks."""


class CannotUse(Exception):
    """What the function wanted of its own server, its caller may not have, or it failed. The text says which."""


class NotAnswered(CannotAsk):
    """The caller's client was asked, and refused, or sent no answer that could be used. The text says why."""


class Cancelled(BaseException):
    """The call is over. Raised in a sync function by its next use of the context; an async one sees `CancelledError`.

    Not an `Exception`, so that `except Exception` in the function does not keep it running.
    """


class Misuse(TypeError):
    """The author asks for something that cannot be. The text says what to write instead."""


class Unfit(ValueError):
    """A JSON value does not fit its hint. `at` is where in the value; the text is written for the caller."""

    def __init__(self, text: str, at: str = "") -> None:
        super().__init__(f"{at}: {text}" if at else text)
        self.text = text
        self.at = at

    def below(self, step: str) -> Unfit:
        """The same, seen from one level higher up."""
        inner = self.at if self.at.startswith("[") or not self.at else f".{self.at}"
        return Unfit(self.text, f"{step}{inner}")
