"""What a browser is shown that brings the answer of a login to this machine (loopback.py): one page, which asks nobody for anything.

It has the look of a server's pages (auth/templates), from which nothing is loaded: the server may be somebody else's.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Final, Literal, TypeAlias

import msgspec

Mark: TypeAlias = Literal["done", "refused", "lost"]
# Of a name that a server gives itself.
NAME_CHARACTERS: Final = 80
WHY_CHARACTERS: Final = 300


class CallbackPage(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str
    mark: Mark = "lost"


ARRIVED: Final = CallbackPage(
    title="The answer has arrived",
    text="Your terminal goes on from here, and says how it ends. You can close this page.",
    mark="done",
)
NOT_OURS: Final = CallbackPage(
    title="This answer belongs to no login here",
    text="Perhaps it is one of an earlier try. Go back to your terminal.",
)
NOT_HERE: Final = CallbackPage(title="There is nothing here", text="Go back to your terminal.")


def logged_in(name: str, host: str) -> CallbackPage:
    """Return the page of a login at `host` that has ended well. `name`: of the server, as it says."""
    shown = _printable(name, NAME_CHARACTERS) or host
    return CallbackPage(
        title=f"You are logged in to {shown}",
        text=f"That is the server at {host}. You can close this page and go back to the terminal.",
        mark="done",
    )


def refused(why: str, host: str) -> CallbackPage:
    """Return the page of a login at `host` that came to nothing."""
    said = _printable(why, WHY_CHARACTERS) or "the terminal says why"
    return CallbackPage(
        title=f"You were not logged in to {host}",
        text=f"{said[0].upper()}{said[1:]}. You can close this page and go back to the terminal.",
        mark="refused",
    )


def _printable(text: str, most: int) -> str:
    return "".join(c for c in text[: 4 * most] if c.isprintable())[:most]


_MARKS: Final[dict[Mark, str]] = {
    "done": "M5 12.8 10 17.5 19.2 7",
    "refused": "M12 6v7.5M12 17.6v.2",
    "lost": "M9 9.2a3 3 0 1 1 4.4 2.7c-.9.5-1.4 1-1.4 2M12 17.4v.2",
}
_STYLE: Final = """
:root { color-scheme: light dark; --ground: #f5f4f0; --card: #fff; --ink: #1c1b19; --soft: #5f5b54; --line: #e2dfd7;
  --done: #17624a; --done-soft: #e3f0ea; --refused: #a3261d; --refused-soft: #fcebe8; }
@media (prefers-color-scheme: dark) { :root { --ground: #121412; --card: #1b1e1c; --ink: #eeeeea; --soft: #a6a8a2; --line: #303431;
  --done: #6fd0a6; --done-soft: #1d3329; --refused: #ff9d92; --refused-soft: #371b18; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; padding: 0 1rem; display: flex; flex-direction: column; align-items: center; background: var(--ground);
  color: var(--ink); font: 400 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
header, main { width: 100%; max-width: 31rem; }
header { display: flex; align-items: center; gap: .55rem; font-weight: 650; padding: 1.25rem .25rem .9rem; min-height: 4.9rem; }
header svg { width: 1.75rem; height: 1.75rem; color: var(--done); }
main { background: var(--card); border: 1px solid var(--line); border-radius: 1.1rem; padding: clamp(1.35rem, 5.5vw, 2.4rem); }
h1 { font-size: clamp(1.4rem, 5.2vw, 1.7rem); line-height: 1.2; letter-spacing: -.022em; font-weight: 680; margin: 0 0 .5rem;
  overflow-wrap: anywhere; text-wrap: balance; }
p { margin: 0; color: var(--soft); }
.seal { width: 3.25rem; height: 3.25rem; border-radius: 50%; display: grid; place-items: center; margin: 0 0 1.1rem; }
.seal svg { width: 1.6rem; height: 1.6rem; }
.done { background: var(--done-soft); color: var(--done); }
.refused { background: var(--refused-soft); color: var(--refused); }
.lost { background: var(--ground); color: var(--soft); }
"""
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Ostiary</title><link rel="icon" href="data:,"><style>{style}</style></head>
<body><header><svg viewBox="0 0 32 32" aria-hidden="true" fill="none"><path d="M6 29V13a10 10 0 0 1 20 0v16" stroke="currentColor" \
stroke-width="2.6" stroke-linecap="round"/><path d="M11.5 29V15.2l9-3.4V29z" fill="currentColor"/><path d="M3 29h26" \
stroke="currentColor" stroke-width="2.6" stroke-linecap="round"/></svg>Ostiary</header>
<main><div class="seal {mark}" aria-hidden="true"><svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.4" \
stroke-linecap="round" stroke-linejoin="round"><path d="{path}"/></svg></div>
<h1>{title}</h1><p>{text}</p></main></body></html>
"""


def html(page: CallbackPage) -> bytes:
    return _PAGE.format(
        title=escape(page.title),
        text=escape(page.text),
        mark=page.mark,
        path=_MARKS[page.mark],
        style=_STYLE,
    ).encode("utf-8", "replace")


def policy() -> str:
    """The one style may be, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
