"""Who calls, as far as a function may know it: never what lets them in.

What the client says of itself is told as it says it. Decide by scopes and claims, which the server has checked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

Json = Mapping[str, Any]

# What is kept of conversations: of as many, the one unused for longest gives way, and in each as many names.
MOST_CONVERSATIONS = 1000
MOST_NAMES = 256


class Client:
    """The program at the other end. `capabilities` are the words of `ctx.can`: what it can be asked for."""

    def __init__(self, name: str, version: str, capabilities: frozenset[str]) -> None:
        self.name = name
        self.version = version
        self.capabilities = capabilities


class Claims:
    """`kind` is "user" (a person), "client" or "api_key" (a machine), "local", "payer" or "anonymous". `person` and `program` are
    what the owner of the server knows them by; empty where there is no such name."""

    def __init__(self, subject: str, facts: Json) -> None:
        self.subject = subject
        self.kind: str = facts.get("kind", "")
        self.person: str = facts.get("person", "")
        self.program: str = facts.get("program", "")
        self.client_id: str | None = facts.get("client_id")


class State(MutableMapping[str, Any]):
    """What a file remembers of one conversation. It is gone when the worker is: after an edit, a crash, a restart."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._values and len(self._values) >= MOST_NAMES:
            raise ValueError(f"the state of one conversation holds no more than {MOST_NAMES} names")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)


class States:
    """Of all conversations. Functions in several threads may ask at once."""

    def __init__(self) -> None:
        self._by_session: dict[str, State] = {}
        self._lock = threading.Lock()

    def of(self, session: str) -> State:
        """Where one caller cannot be told from others, a new one each time."""
        if not session:
            return State()
        with self._lock:
            state = self._by_session.pop(session, None)
            self._by_session[session] = state = State() if state is None else state
            if len(self._by_session) > MOST_CONVERSATIONS:
                del self._by_session[next(iter(self._by_session))]
        return state
