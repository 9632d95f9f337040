"""Changes of one server, told to the same server at other nodes: each has clients that listen. What came from another goes no further."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from server.store.node_messages.node_messages import NodeMessage, NodeMessages

LIST: Final = "list"
RESOURCE: Final = "resource"


class TellsOfChanges(Protocol):
    """What is asked of endpoint.py: tell whoever listens at this node."""

    def tell_list(self, kind: str) -> None: ...

    def tell_resource(self, uri: str) -> None: ...

    def tell_all(self) -> None: ...


class ChangesElsewhere:
    """Of one server."""

    def __init__(self, letters: NodeMessages, server: str) -> None:
        self._letters = letters
        self._server = server

    def list_changed(self, kind: str) -> None:
        self._letters.send_soon(LIST, self._server, kind.encode())

    def resource_changed(self, uri: str) -> None:
        self._letters.send_soon(RESOURCE, self._server, uri.encode())


def hear_changes(letters: NodeMessages, endpoints: Mapping[str, TellsOfChanges]) -> None:
    """For all servers of a process. Where there was more than could be read, everybody is told to look again."""

    def hear_list(letter: NodeMessage) -> None:
        endpoints[letter.topic].tell_list(letter.body.decode())

    def hear_resource(letter: NodeMessage) -> None:
        endpoints[letter.topic].tell_resource(letter.body.decode())

    def missed() -> None:
        for endpoint in endpoints.values():
            endpoint.tell_all()

    letters.hear(LIST, hear_list, endpoints.__contains__)
    letters.hear(RESOURCE, hear_resource, endpoints.__contains__)
    letters.on_missed(missed)
