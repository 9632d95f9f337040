"""The nodes of one database as HTML: what needs the owner first, and all of them in a list. Where there can be one only, nothing."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from auth.pages.html_shell import ago
from auth.values.identity_model import Millis
from auth.values.requester import shown
from server.console.overview.call_list_html import NAME, NOTHING, REASON, joined
from server.console.overview.nodes_seen import WHAT_TO_DO, NodeStanding, by_version
from server.console.overview.outage_effects import lasting

_TAGS = {"ready": "good", "not ready": "bad", "silent": "warn"}


def troubled_nodes(found: Sequence[NodeStanding]) -> Markup:
    """Each that nobody has heard of or that is not ready: since when or why, what that means, and what to do."""
    return joined(
        Markup(
            '<div class="note amber"><p><strong>The node <bdi>{}</bdi> {}</strong></p><p>{}</p></div>'
        ).format(shown(each.machine, NAME), *_trouble(each, found))
        for each in found
        if each.standing in ("silent", "not ready")
    )


def _trouble(each: NodeStanding, found: Sequence[NodeStanding]) -> tuple[str, str]:
    if each.standing == "silent":
        return (
            f"has been silent for {lasting(each.quiet_ms)}",
            f"It was at {shown(each.address, NAME)}. {_meanwhile(found)}. {WHAT_TO_DO}.",
        )
    why = shown("; ".join(each.why), REASON) or "it does not say why"
    return "is not ready", f"{_sentence(why)}. Its log has more, and ostiary status on its machine."


def all_nodes(found: Sequence[NodeStanding], now: Millis) -> Markup:
    if not found:
        return NOTHING
    rows = joined(_node(each, now) for each in found)
    body = Markup('<ul class="rows">{}</ul>').format(rows)
    return Markup("<section><h2>Nodes</h2>{}{}</section>").format(_versions(found), body)


def _meanwhile(found: Sequence[NodeStanding]) -> str:
    if any(each.standing == "ready" for each in found):
        return "What it had in hand the others go on with"
    return "Nobody else is ready"


def _versions(found: Sequence[NodeStanding]) -> Markup:
    versions = by_version(found)
    if not versions:
        return NOTHING
    said = "; ".join(f"{version} on {', '.join(machines)}" for version, machines in versions.items())
    return Markup(
        "<p>Different versions serve: <bdi>{}</bdi>. That is so while nodes are replaced one by one, and should not last.</p>"
    ).format(shown(said, REASON))


def _node(each: NodeStanding, now: Millis) -> Markup:
    kind = _TAGS.get(each.standing, "")
    here = Markup(' <span class="soft">this one</span>') if each.here else NOTHING
    silent = each.standing == "silent"
    facts = [
        f"version {', '.join(each.versions)}",
        *([f"{each.workers} worker{'' if each.workers == 1 else 's'}"] if each.workers else []),
        f"started {ago(each.started_at, now)}",
    ]
    heard = f"silent for {lasting(each.quiet_ms)}" if silent else f"last heard of {_moments(each.quiet_ms)}"
    why = joined(
        Markup('<small class="may">{}</small>').format(_sentence(shown(words, REASON))) for words in each.why
    )
    return Markup(
        '<li><div><strong><bdi>{}</bdi></strong> <span class="tag{}">{}</span>{}</div>'
        '<div class="more">{}<small>{}</small><small><bdi>{}</bdi>, {}</small></div></li>'
    ).format(
        shown(each.machine, NAME),
        f" {kind}" if kind else "",
        each.standing,
        here,
        why,
        ", ".join(facts),
        shown(each.address, NAME),
        heard,
    )


def _moments(millis: Millis) -> str:
    """`ago` begins with minutes, and these are seconds."""
    return f"{lasting(millis)} ago" if millis >= 1_000 else "just now"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"
