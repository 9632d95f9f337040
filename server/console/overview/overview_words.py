"""Words and figures of the Overview and of the page of calls, for their templates (auth/templates/overview.html, calls.html)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup, escape

from auth.pages.html_shell import ago, in_words
from auth.values.identity_model import Millis
from auth.values.requester import shown
from server.console.overview import nodes_seen
from server.console.overview.call_figures import DoorFigures, HourFigures, is_failure
from server.console.overview.calls_page import OUTCOMES
from server.console.overview.nodes_seen import WHAT_TO_DO, NodeStanding
from server.console.overview.outage_effects import hit_in_words, lasting, percent

NAME: Final = 128  # characters of what somebody calls something
REASON: Final = 300
# Of the picture of a day, as its viewBox has them.
WIDTH: Final = 480
HEIGHT: Final = 72
GAP: Final = 3
# Even one call of a busy day can be seen.
LEAST: Final = 3


def who(kind: str, person: str, program: str) -> str:
    """Name whoever called as the owner knows them."""
    if person:
        return shown(person, NAME)
    if kind == "anonymous":
        return "callers without a login"
    return shown(program, NAME) or ("further callers" if not kind else "a machine")


def calls_path(**wanted: str) -> str:
    query = urlencode({name: value for name, value in wanted.items() if value}, errors="replace")
    return f"/account/calls?{query}" if query else "/account/calls"


def number(count: int) -> str:
    return f"{count:,}".replace(",", "\u202f")


def counted(count: int, noun: str = "call") -> str:
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def failed(count: int, calls: int) -> str:
    return f"{number(count)} failed ({percent(count, calls)}%)" if count else "none failed"


def took(ms: float) -> str:
    if ms < 10:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1000:.1f} s"


def time_of_day(at: Millis, form: str = "%H:%M:%S") -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime(form)


def hour_span(at: Millis) -> str:
    return f"{time_of_day(at, '%H:%M')} to {time_of_day(at + 3_600_000, '%H:%M')}"


def iso(at: Millis) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")


def sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def breakable(name: str) -> Markup:
    """Let a long name break between its words, and not in one: a column is narrow on a phone."""
    return Markup(re.sub("[_/.-]+", r"\g<0><wbr>", str(escape(name))))


def node_trouble(node: NodeStanding, found: Sequence[NodeStanding]) -> tuple[str, str]:
    """Say of a node that is silent or not ready since when or why, what that means, and what to do."""
    if node.standing == "silent":
        goes_on = any(each.standing == "ready" for each in found)
        meanwhile = "What it had in hand the others go on with" if goes_on else "Nobody else is ready"
        return (
            f"has been silent for {lasting(node.quiet_ms)}",
            f"It was at {shown(node.address, NAME)}. {meanwhile}. {WHAT_TO_DO}.",
        )
    why = shown("; ".join(node.why), REASON) or "it does not say why"
    return "is not ready", f"{sentence(why)}. Its log has more, and ostiary status on its machine."


def by_version(found: Sequence[NodeStanding]) -> str:
    """Say which versions serve where; nothing where there is one."""
    versions = nodes_seen.by_version(found)
    return "; ".join(f"{version} on {', '.join(machines)}" for version, machines in versions.items())


def turned_away(found: DoorFigures) -> str:
    facts = (
        (found.wrong_codes, "wrong code"),
        (found.wrong_sign_ins, "refused sign-in"),
        (found.others, "other refusal"),
        (found.new_programs, "new program"),
    )
    return ", ".join(counted(count, noun) for count, noun in facts if count).capitalize()


class ChartBar(NamedTuple):
    kind: str  # of the style sheet: "none", "bad", or that of a call that went well, ""
    x: str
    y: int
    width: str
    height: int


def chart_bars(hours: Sequence[HourFigures]) -> Iterator[ChartBar]:
    """Draw a day of calls, each hour as one bar or two: what went well, above what failed."""
    most, step = max((each.calls for each in hours), default=0), WIDTH / max(len(hours), 1)
    for place, each in enumerate(hours):
        x, width = f"{place * step:.1f}", f"{step - GAP:.1f}"
        if not each.calls:
            yield ChartBar("none", x, HEIGHT - 1, width, 1)
            continue
        tall = max(LEAST, round(HEIGHT * each.calls / most))
        bad = max(LEAST, round(tall * each.failed / each.calls)) if each.failed else 0
        yield ChartBar("", x, HEIGHT - tall, width, tall - bad)
        if bad:
            yield ChartBar("bad", x, HEIGHT - bad, width, bad)


_FUNCTIONS: Final = (
    ago, breakable, by_version, calls_path, counted, failed, hit_in_words, hour_span, in_words, is_failure, iso, lasting, node_trouble,
    number, sentence, time_of_day, took, who,
)  # fmt: skip
# Names that the templates know.
WORDS: Final[Mapping[str, Any]] = MappingProxyType(
    {"outcomes": OUTCOMES, **{each.__name__: each for each in _FUNCTIONS}}
)
