"""A day of calls as a picture: bars of an inline SVG, and the same as a table, for whoever reads rather than looks. Colours are the style
sheet's, so there is nothing in it that a strict content policy has to allow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from auth.values.identity_model import Millis
from server.console.overview.call_figures import HourFigures

WIDTH: Final = 480
HEIGHT: Final = 72
GAP: Final = 3
# Even one call of a busy day can be seen.
LEAST: Final = 3


def by_the_hour(hours: Sequence[HourFigures]) -> Markup:
    most = max((each.calls for each in hours), default=0)
    if not most:
        return Markup("")
    step = WIDTH / len(hours)
    bars = Markup("").join(_bar(each, place * step, step - GAP, most) for place, each in enumerate(hours))
    busiest = max(hours, key=lambda each: each.calls)
    label = f"Calls by the hour. The most were {busiest.calls}, {_span(busiest.at)}."
    rows = Markup("").join(
        Markup('<tr><td>{}</td><td class="amount">{}</td><td class="amount">{}</td></tr>').format(
            _span(each.at), each.calls, each.failed
        )
        for each in reversed(hours)
        if each.calls
    )
    return Markup(
        '<figure class="chart"><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
        "<figcaption><span>{}</span><span>now</span></figcaption></figure>"
        "<details><summary>By the hour</summary>"
        '<table class="moves"><thead><tr><th scope="col">hour (UTC)</th><th scope="col" class="amount">calls</th>'
        '<th scope="col" class="amount">failed</th></tr></thead><tbody>{}</tbody></table></details>'
    ).format(WIDTH, HEIGHT, label, bars, f"{_clock(hours[0].at)} UTC", rows)


def _bar(each: HourFigures, x: float, width: float, most: int) -> Markup:
    if not each.calls:
        return Markup('<rect class="none" x="{:.1f}" y="{}" width="{:.1f}" height="1"/>').format(
            x, HEIGHT - 1, width
        )
    tall = max(LEAST, round(HEIGHT * each.calls / most))
    bad = max(LEAST, round(tall * each.failed / each.calls)) if each.failed else 0
    well = Markup('<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
        x, HEIGHT - tall, width, tall - bad
    )
    if not bad:
        return well
    return well + Markup('<rect class="bad" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
        x, HEIGHT - bad, width, bad
    )


def _span(at: Millis) -> str:
    return f"{_clock(at)} to {_clock(at + 3_600_000)}"


def _clock(at: Millis) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M}"
