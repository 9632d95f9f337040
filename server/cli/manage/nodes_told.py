"""What `ostiary status` says of the nodes on one database. Nothing where the rows are in a file."""

from __future__ import annotations

import time
from typing import Any

from server.cli import terminal


def node_lines(server: dict[str, Any]) -> list[tuple[str, str]]:
    nodes: list[dict[str, Any]] | None = server.get("nodes")
    own: dict[str, Any] | None = server.get("node")
    if nodes is None and own is not None:  # a server of another version, or a store that cannot be read
        return _known_last(own)
    if not nodes:
        return []
    # What they are called may be long, and how each is stands first for who looks.
    return [("nodes", _counted(nodes)), *((f"  {each['standing']}", _node(each)) for each in nodes)]


def node_hints(server: dict[str, Any]) -> list[str]:
    nodes = server.get("nodes") or ()
    if not any(each["standing"] == "silent" for each in nodes):
        return []
    return ["look on the silent node's machine whether it runs; one taken away for good is named for a day"]


def _counted(nodes: list[dict[str, Any]]) -> str:
    ready = sum(1 for each in nodes if each["standing"] == "ready")
    said = f"{ready} ready" if ready == len(nodes) else f"{ready} of {len(nodes)} ready"
    versions: dict[str, int] = {}
    for each in nodes:
        for version in each["versions"] if each["standing"] != "silent" else ():
            versions[version] = versions.get(version, 0) + 1
    if len(versions) < 2:
        return said
    # As while they are replaced one by one.
    return (
        f"{said}, of different versions: {', '.join(f'{name} ({count})' for name, count in versions.items())}"
    )


def _node(node: dict[str, Any]) -> str:
    machine, address = str(node["machine"]), str(node["address"])
    named = address if address.startswith(f"{machine}:") else f"{machine} at {address}"
    facts = [f"version {', '.join(node['versions'])}"]
    if workers := sum(1 for each in node["processes"] if each["worker"] and each["standing"] == "ready"):
        facts.append(f"{workers} worker{'' if workers == 1 else 's'}")
    quiet = terminal.duration(node["quiet_ms"] / 1000)
    if node["standing"] == "silent":
        facts.insert(0, f"for {quiet}")
    else:
        facts.append(f"for {terminal.duration(time.time() - node['started_at'] / 1000)}")
        facts.append(f"heard {f'{quiet} ago' if node['quiet_ms'] >= 1_000 else 'just now'}")
    return f"{named}{' (this one)' if node['here'] else ''}, {', '.join(facts)}" + "".join(
        f"; {each}" for each in node["why"]
    )


def _known_last(own: dict[str, Any]) -> list[tuple[str, str]]:
    """What it knew of the others when it heard of them last."""
    if not own["others"] and not own["lapsed"]:
        return []
    said = f"{own['name']}, beside {', '.join(each['name'] for each in own['others']) or 'no other'}"
    return [("node", f"{said}; it could not say in time that it is alive" if own["lapsed"] else said)]
