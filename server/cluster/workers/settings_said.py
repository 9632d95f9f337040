"""What came of reading the settings again, in the one log: what all workers say of it is said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from server.cluster.workers.worker_messages import SaidLine
from server.lib.log.logger import Logger


def said_once(said: Mapping[int, Sequence[SaidLine]], log: Logger) -> None:
    """Where only some say it, by which."""
    found: dict[bytes, tuple[SaidLine, list[int]]] = {}
    for number, lines in said.items():
        for line in lines:
            found.setdefault(msgspec.json.encode(line, order="sorted"), (line, []))[1].append(number)
    for line, numbers in found.values():
        fields = line.fields if len(numbers) == len(said) else {**line.fields, "workers": numbers}
        {"debug": log.debug, "info": log.info, "warning": log.warning}.get(line.level, log.error)(
            line.event, **fields
        )
