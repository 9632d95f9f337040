"""Screens one after the other, as an SVG that plays them: each line of text is in it once for each time that it is to be seen, and CSS says
when. No script, nothing from elsewhere. Whoever wants no motion sees one screen, and so does whoever has no animations."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from pane import Row, Shown, Stretch, Style

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8.4, 19, 14
MARGIN, BAR = 16, 34

STYLE_SHEET = """
svg{--ground:#fbfaf7;--bar:#eceae4;--line:#d5d2c9;--ink:#24292f;--dim:#6a6f76;--red:#b42318;--green:#116329;--yellow:#7d4e00;
--blue:#0a53a8;--magenta:#8250df;--cyan:#1b6a78}
@media (prefers-color-scheme:dark){svg{--ground:#161b22;--bar:#21262d;--line:#3d444d;--ink:#e6edf3;--dim:#9198a1;--red:#ff7b72;
--green:#56d364;--yellow:#e3b341;--blue:#79c0ff;--magenta:#d2a8ff;--cyan:#76e3ea}}
text{font:%(size)dpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink);white-space:pre}
.ground{fill:var(--ground);stroke:var(--line)}.bar{fill:var(--bar)}.edge{stroke:var(--line)}.cursor{fill:var(--ink);opacity:.55}
.title{fill:var(--dim);text-anchor:middle}.bold{font-weight:700}.dim{fill:var(--dim)}
.red{fill:var(--red)}.green{fill:var(--green)}.yellow{fill:var(--yellow)}.blue{fill:var(--blue)}.magenta{fill:var(--magenta)}.cyan{fill:var(--cyan)}
.at{visibility:hidden}.still{visibility:visible}
@media (prefers-reduced-motion:no-preference){.at{animation:%(total).2fs step-end infinite}%(when)s}
%(keyframes)s"""


@dataclass(kw_only=True)
class Shot:
    """A screen, under the title of its terminal, and for how long it is seen."""

    title: str
    screen: Shown
    seconds: float


@dataclass(kw_only=True)
class Film:
    columns: int
    lines: int
    description: str
    shots: list[Shot] = field(default_factory=list[Shot])
    still: int = -1  # the shot for those who want no motion

    def show(self, title: str, screen: Shown, seconds: float) -> None:
        if self.shots and (self.shots[-1].title, self.shots[-1].screen) == (title, screen):
            self.shots[-1].seconds += seconds
        else:
            self.shots.append(Shot(title=title, screen=screen, seconds=seconds))

    def drawn(self) -> str:
        width = round(self.columns * CELL_WIDTH + 2 * MARGIN)
        height = BAR + self.lines * CELL_HEIGHT + 2 * MARGIN - 8
        starts = [0.0]
        for shot in self.shots:
            starts.append(starts[-1] + shot.seconds)
        still = self.still % len(self.shots)
        seen = self._seen()
        spans = sorted({span for _, spans in seen.items() for span in spans})
        classes = {span: f"s{number:x}" for number, span in enumerate(spans)}
        body = "\n".join(
            f'<g class="at {classes[first, last]}{" still" if first <= still < last else ""}">{markup}</g>'
            for markup, spans in seen.items()
            for first, last in spans
        )
        sheet = STYLE_SHEET % {
            "size": FONT_SIZE,
            "total": starts[-1],
            "when": "".join(f".{name}{{animation-name:{name}}}" for name in classes.values()),
            "keyframes": "".join(
                _keyframes(name, starts[first] / starts[-1], starts[last] / starts[-1])
                for (first, last), name in classes.items()
            ),
        }
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
            f"<title>{escape(self.description)}</title>\n<style>{sheet}</style>\n"
            f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>'
            f'<path class="bar" d="M1 {BAR}V11A10 10 0 0 1 11 1H{width - 11}A10 10 0 0 1 {width - 1} 11V{BAR}Z"/>'
            f'<path class="edge" d="M1 {BAR}.5H{width - 1}"/>\n{body}\n</svg>\n'
        )

    def _seen(self) -> dict[str, list[tuple[int, int]]]:
        """What is ever to be seen, and from which shot up to which."""
        found: dict[str, list[tuple[int, int]]] = {}
        for number, shot in enumerate(self.shots):
            for markup in self._parts(shot):
                spans = found.setdefault(markup, [])
                if spans and spans[-1][1] == number:
                    spans[-1] = (spans[-1][0], number + 1)
                else:
                    spans.append((number, number + 1))
        return found

    def _parts(self, shot: Shot) -> list[str]:
        middle = round(self.columns * CELL_WIDTH + 2 * MARGIN) / 2
        parts = [f'<text class="title" x="{middle:g}" y="{BAR / 2 + 5:g}">{escape(shot.title)}</text>']
        parts += [_row(number, row) for number, row in enumerate(shot.screen.rows) if row]
        column, line = shot.screen.cursor
        x, y = MARGIN + column * CELL_WIDTH, _top(line)
        parts.append(f'<path class="cursor" d="M{x:.1f} {y:g}h8v17h-8z"/>')
        return parts


def _top(line: int) -> int:
    return BAR + MARGIN - 6 + line * CELL_HEIGHT


def _row(number: int, row: Row) -> str:
    return f'<text y="{_top(number) + 14}">{"".join(_stretch(each) for each in row)}</text>'


def _stretch(stretch: Stretch) -> str:
    # Its length is told, because a reader's font may have letters of another width.
    x = MARGIN + stretch.column * CELL_WIDTH
    length = len(stretch.text) * CELL_WIDTH
    named = _classes(stretch.style)
    looks = f' class="{named}"' if named else ""
    return f'<tspan x="{x:.1f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"{looks}>{escape(stretch.text, quote=False)}</tspan>'


def _classes(style: Style) -> str:
    colour = "" if style.colour in ("white", "black") else style.colour
    return " ".join(filter(None, (colour, "bold" if style.bold else "", "dim" if style.dim else "")))


def _keyframes(name: str, start: float, end: float) -> str:
    frames: dict[str, str] = {"0": "hidden"}
    frames[f"{start * 100:.2f}".rstrip("0").rstrip(".")] = "visible"
    if end < 1:
        frames[f"{end * 100:.2f}".rstrip("0").rstrip(".")] = "hidden"
    return f"@keyframes {name}{{" + "".join(f"{at}%{{visibility:{how}}}" for at, how in frames.items()) + "}"
