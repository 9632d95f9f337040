"""Page values to HTML: one shell, its headers, and the few words for times and waits.

Only pages that ask for a passkey, or have something to be copied, have a script. Everything a stranger claimed goes through `claimed` and is escaped. What a page is about is decided
by its endpoint. Other packages get the same look from `shell_page` and `error_page`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY, MINUTE, SECOND
from auth.values.requester import shown

if TYPE_CHECKING:
    from jinja2 import Environment

    from auth.pages.navigation import NavLink

NONCE_BYTES: Final = 16
ADDRESS_CHARACTERS: Final = 64
HSTS: Final = f"max-age={365 * DAY // SECOND}"

Headers = Sequence[tuple[str, str]]

# For pages that decide: a link with a fragment, or a text to be looked for, would open them below who asks.
OPENS_AT_TOP: Final[Headers] = (("document-policy", "force-load-at-top"),)
# What stands above an error: nothing was found or it is over, it is too early, or something was refused.
ErrorMark: TypeAlias = Literal["lost", "wait", "stop"]
_MARKS: Final[Mapping[int, ErrorMark]] = MappingProxyType(
    {404: "lost", 405: "lost", 409: "lost", 410: "lost", 429: "wait", 503: "wait"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """What every page has around it. `account` and `sign_out_token` come together, or not at all. `form_targets`: origins that
    its form may lead to besides ours, because browsers apply `form-action` to the redirect that follows, too."""

    nonce: str
    secure: bool
    host: str
    account: str | None = None
    sign_out_token: str | None = field(default=None, repr=False)
    form_targets: tuple[str, ...] = ()
    script: bool = False  # the page has a script of ours: passkeys need one
    copies: bool = False  # and one for buttons that copy a text
    signs_in: bool = False  # nobody is signed in here, and somebody could be
    wide: bool = False
    places: tuple[NavLink, ...] = ()  # where whoever is signed in can go


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorReply(WireReply):
    """An error page, which can be drawn once more within another frame: of whoever turns out to be signed in."""

    frame: Frame = field(repr=False)
    within: Callable[[Frame], WireReply] = field(repr=False)


def frame_for(origin: str, entropy: bytes) -> Frame:
    """The frame of a page for nobody in particular. `entropy` is `NONCE_BYTES` from the system's generator."""
    parts = urlsplit(origin)
    return Frame(nonce=base64.b64encode(entropy).decode(), secure=parts.scheme == "https", host=parts.netloc)


# ---------------------------------------------------------------- replies


def render(
    template: str, frame: Frame, *, title: str, status: int = 200, headers: Headers = (), **values: object
) -> WireReply:
    text = _environment().get_template(template).render(frame=frame, title=title, **values)
    return WireReply(
        status=status, headers=(*page_headers(frame), *headers), body=text.encode("utf-8", "replace")
    )


def shell_page(
    title: str, body: Markup, frame: Frame, *, status: int = 200, headers: Headers = ()
) -> WireReply:
    """Any page in the same look. `body` is HTML that its author escaped; a plain string is escaped here."""
    return render("shell.html", frame, title=title, status=status, headers=headers, body=body)


def error_page(
    status: int,
    title: str,
    what_happened: str,
    what_next: str,
    frame: Frame,
    *,
    headers: Headers = (),
    back: tuple[str, str] | None = None,
    mark: ErrorMark | None = None,
    reference: str = "",
) -> ErrorReply:
    """What happened and what to do about it; `back` is a path of ours and the words on its button. `reference`: by which the log knows
    the request, for whoever tells its owner."""
    shown = mark or _MARKS.get(status, "stop")

    def within(frame: Frame) -> WireReply:
        # Whoever is signed in already is not sent to do it again.
        signed_in = frame.account is not None and back is not None and back[0] == "/signin"
        return render(
            "error.html",
            frame,
            title=title,
            status=status,
            headers=headers,
            what_happened=what_happened,
            what_next=what_next,
            back=("/account", "To your account") if signed_in else back,
            mark=shown,
            reference=reference if shown == "stop" else "",
        )

    reply = within(frame)
    return ErrorReply(status=reply.status, headers=reply.headers, body=reply.body, frame=frame, within=within)


def redirect(path: str, *, headers: Headers = ()) -> WireReply:
    """303: whatever the method was, the next request is a GET. `path` is ours, or a configured provider's address."""
    return WireReply(
        status=303,
        headers=(
            ("location", path),
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
            *headers,
        ),
    )


def page_headers(frame: Frame) -> tuple[tuple[str, str], ...]:
    policy = (
        "default-src 'none'",
        f"style-src 'nonce-{frame.nonce}'",
        "img-src 'self' data:",
        " ".join(("form-action 'self'", *frame.form_targets)),
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
    if frame.script or frame.copies:
        policy = (*policy, f"script-src 'nonce-{frame.nonce}'")
    if frame.script:
        policy = (*policy, "connect-src 'self'")
    headers = (
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", "; ".join(policy)),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-opener-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    )
    return (*headers, ("strict-transport-security", HSTS)) if frame.secure else headers


# ---------------------------------------------------------------- words


def in_words(duration: Millis) -> str:
    """A duration as people say it, rounded up: a wait must not be told too short."""
    for unit, name in ((DAY, "day"), (60 * MINUTE, "hour"), (MINUTE, "minute"), (SECOND, "second")):
        if duration > unit or unit == SECOND:
            count = max(1, -(-duration // unit))
            return f"{count} {name}{'' if count == 1 else 's'}"
    raise AssertionError("the last unit always answers")


def ago(since: Millis, now: Millis) -> str:
    passed = max(0, now - since)
    for unit, name in ((DAY, "day"), (60 * MINUTE, "hour"), (MINUTE, "minute")):
        count = passed // unit
        if count >= (2 if unit > MINUTE else 1):  # "90 minutes" says more than "1 hour"
            return f"{count} {name}{'' if count == 1 else 's'} ago"
    return "just now"


def clock(at: Millis) -> str:
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def moment_in_full(at: Millis) -> str:
    """To the second."""
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    return f"{moment.day} {moment:%b %Y, %H:%M:%S}"


def day(at: Millis) -> str:
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    return f"{moment.day} {moment:%b %Y}"


def address(ip: str) -> Markup:
    """One of IPv6 is as wide as a phone: it breaks between its groups, and nowhere else."""
    return Markup(re.sub(":+", r"\g<0><wbr>", str(escape(shown(ip, ADDRESS_CHARACTERS)))))


def prose(text: str) -> Markup:
    """Plain text to HTML; what stands between backquotes is something to type."""
    return Markup().join(
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(text.split("`"))
    )


# ---------------------------------------------------------------- templates


@cache
def _environment() -> Environment:
    from jinja2 import (  # with the first page: most servers rarely show one
        Environment,
        FunctionLoader,
        StrictUndefined,
    )

    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, auto_reload=False
    )
    filters = cast("dict[str, Callable[..., object]]", environment.filters)
    filters.update(claimed=shown, address=address, prose=prose, moment=clock, day=day)
    return environment


def _source(name: str) -> str:
    from importlib.resources import files

    # Not a path of the file system: inside the one-file executable there is none.
    return files("auth").joinpath("templates", name).read_text("utf-8")
