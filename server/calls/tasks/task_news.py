"""What happened to a task at one node, told to the others: that it asks, was answered, has ended, and who waits for it. The rows are the
truth (sealed_tasks.py); a letter only wakes whoever looks at them, and stops work that was ended. Lost, it costs a look of two seconds.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from server.mcp.task_faces import hash_id
from server.store.node_messages.node_messages import NodeMessage, NodeMessages

CHANGED: Final = "task"
FETCHED: Final = "task-fetched"


class _Changed(msgspec.Struct, array_like=True):
    server: str
    task_id: str
    over: bool  # it was ended from outside: whoever runs it stops


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Changed).decode
_decode_on: Final = msgspec.json.Decoder(bool).decode


class TaskHearer(Protocol):
    """What is asked of task_engine.py."""

    def changed_elsewhere(self, server: str, task_id: str, *, over: bool) -> None: ...

    def fetched_elsewhere(self, task: str, node: str, on: bool) -> None: ...


class TasksElsewhere:
    def __init__(self, letters: NodeMessages, hearer: TaskHearer) -> None:
        self._letters = letters
        self._hearer = hearer
        letters.hear(CHANGED, self._hear_change)
        letters.hear(FETCHED, self._hear_fetch)

    def changed(self, server: str, task_id: str, *, over: bool) -> None:
        if not self._letters.alone:
            self._letters.send(CHANGED, hash_id(task_id), _encode(_Changed(server, task_id, over)))

    def fetched(self, task: str, on: bool) -> None:
        """Somebody waits here for its result, and is asked what it asks; or nobody does any longer."""
        if not self._letters.alone:
            self._letters.send(FETCHED, task, _encode(on))

    @property
    def alone(self) -> bool:
        return self._letters.alone

    def is_alive(self, node: str) -> bool:
        return self._letters.is_alive(node)

    def _hear_change(self, letter: NodeMessage) -> None:
        told = _decode(letter.body)
        self._hearer.changed_elsewhere(told.server, told.task_id, over=told.over)

    def _hear_fetch(self, letter: NodeMessage) -> None:
        self._hearer.fetched_elsewhere(letter.topic, letter.node, _decode_on(letter.body))
