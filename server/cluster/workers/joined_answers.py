"""What all workers answer to one question of somebody's at the machine, put together: as one process would have answered, and how the
workers stand.

What the store says any of them says for all. What is counted is added up; what is wrong with one of them is said, with whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from msgspec.structs import asdict

from server.cluster.workers.worker_messages import WorkerSeen

Answers = Mapping[int, Mapping[str, Any]]  # by the number of the worker


def status(answers: Answers, workers: Sequence[WorkerSeen]) -> dict[str, Any]:
    first = next(iter(answers.values()))
    return {
        **first,
        **_behind(answers),
        # Since one of them was started there has been somebody who serves.
        "started_at": min(
            (each["started_at"] for each in answers.values() if "started_at" in each), default=None
        ),
        "settings": _settings([each["settings"] for each in answers.values() if "settings" in each]),
        "held_back": _held_back(answers),
        "store": _store([each["store"] for each in answers.values() if "store" in each]),
        "workers": [{**asdict(seen), "answers": seen.worker in answers} for seen in workers],
    }


def tried(answers: Answers, workers: Sequence[WorkerSeen]) -> dict[str, Any]:
    return {**next(iter(answers.values())), **_behind(answers)}


# What is about a process, by the name of the command, and how the answers of all become one. Everything else is about the store, or about what
# the settings say, and any of them answers it.
JOINED: Final[Mapping[str, Callable[[Answers, Sequence[WorkerSeen]], dict[str, Any]]]] = MappingProxyType(
    {"status": status, "try_agents": tried}
)


def _behind(answers: Answers) -> dict[str, Any]:
    """Agents and upstreams: each process has its own."""
    agents: dict[str, dict[str, Any]] = {}
    where: dict[str, list[int]] = {}
    upstreams: dict[str, dict[str, Any]] = {}
    for number, answer in answers.items():
        for agent in cast("Iterable[dict[str, Any]]", answer.get("agents") or ()):
            found = agents.setdefault(agent["name"], dict(agent))
            found["since"] = min(found["since"], agent["since"])
            where.setdefault(agent["name"], []).append(number)
        for upstream in cast("Iterable[dict[str, Any]]", answer.get("upstreams") or ()):
            found = upstreams.setdefault(upstream["name"], dict(upstream))
            found["trouble"] = found["trouble"] or upstream["trouble"]
    for name, numbers in where.items():
        if len(numbers) < len(answers):
            agents[name]["workers"] = numbers
    has_upstreams = any(each.get("upstreams") is not None for each in answers.values())
    return {
        "agents": list(agents.values()),
        "upstreams": list(upstreams.values()) if has_upstreams else None,
    }


def _settings(states: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What any of them could not take, and what waits for the next start."""
    if not states:
        return None
    return {
        **states[0],
        "read_at": min(each["read_at"] for each in states),
        "problems": _each_once(each["problems"] for each in states),
        "waits": _each_once(each["waits"] for each in states),
    }


def _held_back(answers: Answers) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for answer in answers.values():
        for each in cast("Iterable[dict[str, Any]]", answer.get("held_back") or ()):
            known = found.get(key := (each["who"], each["limit"]))
            found[key] = (
                dict(each)
                if known is None
                else {
                    **known,
                    "times": known["times"] + each["times"],
                    "last_at": max(known["last_at"], each["last_at"]),
                }
            )
    return sorted(found.values(), key=lambda each: -each["times"])


def _store(stores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not stores:
        return {}
    refused: dict[str, int] = {}
    for each in stores:
        for reason, count in each["refused"].items():
            refused[reason] = refused.get(reason, 0) + count
    wrote = [each["wrote_seconds_ago"] for each in stores if each["wrote_seconds_ago"] is not None]
    troubled = next((each for each in stores if each["problem"]), stores[0])
    return {
        **stores[0],
        "problem": troubled["problem"],
        "hint": troubled["hint"],
        "wrote_seconds_ago": min(wrote, default=None),
        "waiting": sum(each["waiting"] for each in stores),
        "oldest_waits_seconds": max(each["oldest_waits_seconds"] for each in stores),
        "refused": refused,
    }


def _each_once(lists: Iterable[Iterable[Any]]) -> list[Any]:
    return list(dict.fromkeys(each for one in lists for each in one))
