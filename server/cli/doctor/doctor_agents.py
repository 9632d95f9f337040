"""The steps of `ostiary doctor` about agents: as the running server finds them, or where none runs, as they are when it tries them itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from server.cli import terminal
from server.client.check_step import CheckStep, left_out_step, names_step

if TYPE_CHECKING:
    from server.run.agent_dry_run import AgentDryRun, TriedAgent
    from server.settings.resolved_settings import Resolved


def agent_steps(
    upstreams: Sequence[Mapping[str, Any]], agents: Sequence[Mapping[str, Any]] | None
) -> list[CheckStep]:
    """Return the steps of a running server. Where some of either are out of order, nothing is said of all."""
    found = [*_upstreams(upstreams), *_agents(agents)]
    bad = [step for step in found if step.state != "ok"]
    return bad or found


def tried_steps(resolved: Resolved) -> list[CheckStep]:
    """Return the steps without one: each agent is started, reached and let go again, while a line says how long that takes already."""
    from server.cli.spinner import Spinner
    from server.run.agent_dry_run import rehearse

    count = sum(len(server.agents) for server in resolved.servers)
    what = "trying the agent" if count == 1 else f"trying {count} agents"
    spinner = Spinner(terminal.StatusLine(), what)
    return rehearsed_steps(
        terminal.run_async(lambda: spinner.during(lambda: rehearse(resolved))),
        settings=str(resolved.source or "the settings"),
    )


def rehearsed_steps(found: AgentDryRun, *, settings: str) -> list[CheckStep]:
    place = f"[[server.agent]] in {settings}"
    steps = [_tried(each, place) for each in found.agents if each.outcome != "well"]
    steps += [
        CheckStep.failed("agents", problem, f"no server starts with it: see {place}")
        for problem in found.problems
    ]
    names = [names_step(list(found.refused_names))] if found.refused_names else []
    names += [left_out_step(found.left_out)] if found.left_out else []
    well = sum(each.outcome == "well" for each in found.agents)
    if steps or not well:
        return [*steps, *names]
    said = "is as it should be" if well == 1 else "are as they should be"
    return [CheckStep.ok("agents", f"{well} tried, and {said}"), *names]


def _tried(agent: TriedAgent, place: str) -> CheckStep:
    if agent.outcome == "unseen":
        return CheckStep.skipped(
            "upstream" if agent.upstream else "agent",
            f"{agent.name}: {agent.words}",
            "start the server, and run this again",
        )
    if agent.outcome == "refused":
        hint = f"no server starts with it: see {place}"
        return CheckStep.failed("agent", agent.words, hint)
    hint = f"a server starts all the same, and its tools fail until it is there; see {place}"
    if agent.upstream:
        return CheckStep.failed("upstream", f"{agent.name}: {agent.words}", hint)
    detail = f"{agent.name} is out of order: {agent.words}"
    return CheckStep.failed("agent", detail, hint)


def _upstreams(upstreams: Sequence[Mapping[str, Any]]) -> list[CheckStep]:
    """Return those with something that their owner can do; else one line for all."""
    bad = [
        CheckStep.failed(
            "upstream", f"{each['name']}: {each['trouble']['words']}{_hit(each)}", "ostiary upstream list"
        )
        for each in upstreams
        if each["trouble"] is not None
    ]
    if bad or not upstreams:
        return bad
    count = len(upstreams)
    said = "is there, and says what was accepted" if count == 1 else "are there, and say what was accepted"
    told = [each["revision"].split(", ") for each in upstreams if each.get("revision")]
    revisions = sorted({revision for each in told for revision in each})
    spoken = f" (MCP {', '.join(revisions)})" if revisions else ""
    return [CheckStep.ok("upstreams", f"{count} {said}{spoken}")]


def _agents(troubles: Sequence[Mapping[str, Any]] | None) -> list[CheckStep]:
    """Return those that are out of order."""
    if troubles is None:  # a server of another version
        return []
    return [
        CheckStep.failed(
            "agent",
            f"{agent['name']} is out of order for {terminal.duration(time.time() - agent['since'] / 1000)}: {agent['words']}{_hit(agent)}",
            "see the server's log; ostiary calls --failed shows who met it",
        )
        for agent in troubles
    ] or [CheckStep.ok("agents", "none is known to be out of order")]


def _hit(agent: Mapping[str, Any]) -> str:
    """Say how many calls it cost, and whose."""
    from server.console.overview.outage_effects import hit_as_told

    return f"; {words}" if (words := hit_as_told(agent)) else ""
