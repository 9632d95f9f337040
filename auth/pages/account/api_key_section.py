"""API keys on the Access page: one's own, and for the owner everybody's; what each may do, when it was used, and ending one.

Making a key wants to know what the servers offer, so that page is in server/console/owner/api_key_pages.py.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import msgspec

from auth.pages import navigation, reauthentication
from auth.pages.account.login_section import SEARCHED, AccessEnded, address, end_access, read_place
from auth.pages.html_shell import ago, day
from auth.pages.page_visit import PageVisit, signed_in
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKey
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.scopes import parse

END: Final = "/account/keys/end"
PURPOSE: Final = "account keys"
SHOWN: Final = 30  # on a page


class ApiKeyRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    whose: str  # empty: one's own
    hint: str
    may: str
    server: str
    used: str
    since: str
    until: str
    over: bool


class ApiKeySection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[ApiKeyRow, ...]
    everybody: bool
    older: str  # the address of those that were made before these; "": there are none
    newest: str  # that of the first page; "": this is it
    searched: str
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> ApiKeySection | None:
    everybody, searched = session.user.role == "owner", visit.query("q").strip()[:SEARCHED]
    before = read_place(visit.query("keys"))
    found = await visit.read(
        api_keys.listing,
        user_id=None if everybody else session.user.id,
        limit=SHOWN + 1,
        before=before,
        like=searched,
    )
    if not found and not everybody:
        return None
    older = ""
    if len(found) > SHOWN:
        last = found[SHOWN - 1]
        older = address(searched, "keys", f"{last.created_at}.{last.id}")
    return ApiKeySection(
        rows=tuple(_row(visit, session, key) for key in found[:SHOWN]),
        everybody=everybody,
        older=older,
        newest="" if before is None else address(searched, "keys", ""),
        searched=searched,
        form_token=visit.token(PURPOSE),
    )


@signed_in(navigation.ACCESS, PURPOSE)
async def end(visit: PageVisit, session: BrowserSession) -> WireReply:
    key_id = visit.form.get("key", "")
    if visit.form.get("sure") != "yes":
        key = await visit.read(api_keys.find, key_id=key_id)
        mine = key is not None and (key.user_id == session.user.id or session.user.role == "owner")
        if key is not None and mine and key.revoked_at is None:
            return _are_you_sure(visit, session, key)
    job = partial(end_key, cookie=visit.cookie, key_id=key_id, now=visit.now)
    return await end_access(visit, session, job, of="a key", did="key-ended")


def _are_you_sure(visit: PageVisit, session: BrowserSession, key: ApiKey) -> WireReply:
    whose = "" if key.user_id == session.user.id else f", which acts for {key.user_name}"
    return visit.page(
        "sure.html",
        title=f"End the key {key.name}?",
        words="End it",
        what=f"Programs that use it{whose} are refused at once, and need another key.",
        action=END,
        back=navigation.ACCESS,
        fields={"key": key.id},
        form_token=visit.token(PURPOSE),
    )


def end_key(db: Db, *, cookie: str, key_id: str, now: Millis) -> AccessEnded | Literal["gone", "prove"]:
    """End a key, as a job. Somebody else's and one that is gone are answered alike; the owner ends everybody's, after a proof."""
    session, key = browser_sessions.find(db, cookie, now), api_keys.find(db, key_id)
    if session is None or key is None:
        return "gone"
    own = key.user_id == session.user.id
    if not own and session.user.role != "owner":
        return "gone"
    if not own and not reauthentication.lately(session, now):
        return "prove"
    if not api_keys.revoke(db, key_id, by=session.user.id, now=now):
        return "gone"
    return AccessEnded(f"{'Your' if own else f'{key.user_name}’s'} key {key.name}")


def _row(visit: PageVisit, session: BrowserSession, key: ApiKey) -> ApiKeyRow:
    now, used = visit.now, ""
    if key.last_used_at is not None:
        used = ago(key.last_used_at, now) + (f" from {key.last_used_ip}" if key.last_used_ip else "")
    words = "; ".join(visit.parts.site.scopes.words(name) for name in parse(key.scope))
    return ApiKeyRow(
        id=key.id,
        name=key.name,
        whose="" if key.user_id == session.user.id else key.user_name,
        hint=key.hint,
        may=words + (f" (tools: {key.tools})" if key.tools else ""),
        server=key.server or "",
        used=used,
        since=day(key.created_at),
        until="" if key.expires_at is None else day(key.expires_at),
        over=key.expires_at is not None and now >= key.expires_at,
    )
