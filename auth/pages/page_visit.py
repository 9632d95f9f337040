"""A visit of a browser to one of our pages: the request, its cookie, and the parts that its endpoint may use.

Pages (their paths are routes in `server/console/pages`) are functions of a `PageVisit`: they read, let the lent hash functions work, hand one job to
the store, and answer with a page. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

from auth.context.identity_parts import Parts
from auth.pages import html_shell, navigation
from auth.pages.html_shell import ErrorMark, Frame, Headers, redirect
from auth.people import browser_sessions, known_browsers
from auth.people.browser_sessions import BrowserSession, NewSession
from auth.people.known_browsers import KnownBrowser
from auth.values.database import Db, NotStored
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE, SECOND
from auth.values.requester import Requester

FORM_KEY: Final = "browser-forms"
ATTEMPTS_KEY: Final = "attempts"
# When whoever found too many before them may try again.
BUSY_MS: Final[Millis] = 5 * SECOND

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class PageVisit:
    request: WireRequest
    parts: Parts
    now: Millis
    who: Requester
    frame: Frame
    cookie: str = field(repr=False)  # the browser's, or a fresh one that the reply sets
    fresh: bool  # the browser brought none
    form: Mapping[str, str] = field(repr=False)  # single values; see `scopes` for what may come often
    scopes: tuple[str, ...]

    @property
    def secure(self) -> bool:
        return self.frame.secure

    # ------------------------------------------------------------ the store

    async def read(self, job: Callable[Concatenate[Db, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Run a job that reads, with these arguments. Raise what the store raises."""
        return await self.parts.store.read(lambda db: job(db, *args, **named))

    async def write(self, job: Callable[Concatenate[Db, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Run a job that writes, with these arguments. Raise what the store raises."""
        return await self.parts.store.write(lambda db: job(db, *args, **named))

    def query(self, name: str) -> str:
        return next((value for key, value in self.request.query if key == name), "")

    # ------------------------------------------------------------ forms

    def token(self, purpose: str) -> str:
        return browser_sessions.form_token(self.parts.subkey(FORM_KEY), self.cookie, purpose)

    def shows(self, purpose: str) -> bool:
        """Return whether the form carries the token that this browser was given for this purpose."""
        return self.gave(purpose, self.form.get("form_token", ""))

    def gave(self, purpose: str, given: str) -> bool:
        """Return whether this is the token that this browser was given for this purpose."""
        cookie = None if self.fresh else self.cookie
        return browser_sessions.token_fits(self.parts.subkey(FORM_KEY), cookie, purpose, given)

    # ------------------------------------------------------------ browsers that came before

    def known(self) -> KnownBrowser | None:
        key = self.parts.subkey(known_browsers.KEY_PURPOSE)
        return known_browsers.read(key, self.request.headers, secure=self.secure, now=self.now)

    def remember_for(self, user_id: str) -> tuple[str, str]:
        """Make the header by which this browser is known as one of this person's."""
        return known_browsers.set_cookie(
            self.parts.subkey(known_browsers.KEY_PURPOSE),
            user_id,
            entropy=self.parts.entropy(known_browsers.NONCE_BYTES),
            secure=self.secure,
            now=self.now,
        )

    # ------------------------------------------------------------ sessions

    async def session(self) -> BrowserSession | None:
        """Return who is signed in here, and keep the session from growing idle."""
        if self.fresh:
            return None
        session = await self.read(browser_sessions.find, cookie=self.cookie, now=self.now)
        if session is not None and self.now - session.last_used_at >= browser_sessions.TOUCHED_EVERY:
            # Who cannot be kept from growing idle may still look, and end what they have.
            with suppress(NotStored):
                await self.write(browser_sessions.touch, session=session, now=self.now)
        return session

    def new_session(self) -> NewSession:
        cookie = browser_sessions.cookie_from(self.parts.entropy(browser_sessions.COOKIE_BYTES))
        return NewSession(cookie=cookie, replaces=self.cookie, who=self.who, now=self.parts.clock())

    def lead_on(self, path: str, fresh: NewSession, *, known_as: str = "") -> WireReply:
        """Lead a browser on whose new session has begun; from now on it is known as one of `known_as`, if that is given."""
        cookie = browser_sessions.set_cookie(fresh.cookie, self.secure, keep=True)
        return redirect(path, headers=(cookie, self.remember_for(known_as)) if known_as else (cookie,))

    def of(self, session: BrowserSession) -> PageVisit:
        """Return the visit with the account, its pages and its way out in the page's head."""
        owner = session.user.role == "owner"
        frame = replace(
            self.frame,
            account=session.user.name,
            sign_out_token=self.token("signout"),
            places=navigation.links(self.parts.site, self.request.path, owner=owner),
        )
        return replace(self, frame=frame)

    # ------------------------------------------------------------ answers

    def page(
        self, template: str, *, title: str, status: int = 200, headers: Headers = (), **values: object
    ) -> WireReply:
        if self.fresh:
            headers = (*headers, browser_sessions.set_cookie(self.cookie, self.secure, keep=False))
        return html_shell.render(template, self.frame, title=title, status=status, headers=headers, **values)

    def error(
        self,
        status: int,
        title: str,
        what_happened: str,
        what_next: str,
        *,
        headers: Headers = (),
        back: tuple[str, str] | None = None,
        mark: ErrorMark | None = None,
    ) -> WireReply:
        return html_shell.error_page(
            status,
            title,
            what_happened,
            what_next,
            self.frame,
            headers=headers,
            back=back,
            mark=mark,
            reference=self.request.request_id,
        )

    def too_many(self, until: Millis, *, back: tuple[str, str]) -> WireReply:
        wait = max(1, until - self.now)
        return self.error(
            429,
            "Too many tries",
            f"You can try again in {html_shell.in_words(wait)}{_at(until, wait)}.",
            "The wait keeps others from guessing. Logins can also be approved on the machine itself, with `ostiary approve`.",
            headers=(("retry-after", str(-(-wait // 1_000))),),
            back=back,
        )

    def hashing_busy(self, *, back: tuple[str, str]) -> WireReply:
        """Answer `HashingBusy`."""
        return self.too_many(self.now + BUSY_MS, back=back)

    def stale_form(self) -> WireReply:
        return self.error(
            403,
            "This form is out of date",
            "Nothing was changed. The page was opened too long ago, in another browser, or cookies are switched off.",
            "Go back, load the page again, and send it once more.",
            back=way_out(self.request.path),
            mark="lost",
        )


def way_out(path: str) -> tuple[str, str]:
    """Return where whoever was at an address without a page of its own most likely wants to go."""
    for beginning, place, words in (
        ("/account", "/account", "To your account"),
        ("/sign", "/signin", "Sign in"),
        ("/device", "/device", "Enter a code"),
    ):
        if path.startswith(beginning):
            return place, words
    return "/", "To the front page"


def _at(until: Millis, wait: Millis) -> str:
    """Return the time of day, where that is more than somebody counts to."""
    return f", at {html_shell.clock(until).rpartition(', ')[2]}" if wait > MINUTE else ""


class PageStep(Protocol):
    def __call__(self, visit: PageVisit) -> Awaitable[WireReply]: ...


SignedInStep: TypeAlias = Callable[[PageVisit, BrowserSession], Awaitable[WireReply]]


def sign_in_then(path: str) -> str:
    return f"/signin?next={quote(path)}"


def signed_in(path: str, purpose: str = "") -> Callable[[SignedInStep], PageStep]:
    """Make a step of one that is for people who are signed in: anybody else signs in first, and comes to `path` then.

    With a `purpose`, the form must carry its token.
    """

    def stepped(step: SignedInStep) -> PageStep:
        async def begin(visit: PageVisit) -> WireReply:
            session = await visit.session()
            if session is None:
                return redirect(sign_in_then(path))
            visit = visit.of(session)
            if purpose and not visit.shows(purpose):
                return visit.stale_form()
            return await step(visit, session)

        return begin

    return stepped
