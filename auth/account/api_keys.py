"""API keys that belong to a person, on their account page: what each may do, when it was used, and revoking one. Making a key is
done at the machine (`ostiary api-keys create`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from auth.account import notices
from auth.device.code_entry import sign_in_then
from auth.pages import ago, day, redirect
from auth.people import sessions
from auth.people.sessions import BrowserSession
from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKey
from auth.values.db import Db
from auth.values.model import Millis
from auth.values.scopes import Vocabulary, parse
from auth.values.wire import WireReply
from auth.visit import PageVisit

PURPOSE: Final = "account keys"
SHOWN: Final = 200


class ApiKeyRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    hint: str
    may: str
    server: str
    used: str
    since: str
    until: str
    over: bool


class ApiKeySection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[ApiKeyRow, ...]
    more: bool  # than are shown
    form_token: str


async def look(visit: PageVisit, session: BrowserSession) -> ApiKeySection | None:
    found = await visit.parts.store.read(partial(api_keys.listing, user_id=session.user.id, limit=SHOWN + 1))
    if not found:
        return None
    rows = tuple(_row(key, visit.parts.site.scopes, visit.now) for key in found[:SHOWN])
    return ApiKeySection(rows=rows, more=len(found) > SHOWN, form_token=visit.token(PURPOSE))


async def revoke(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then("/account"))
    visit = visit.of(session)
    if not visit.shows(PURPOSE):
        return visit.stale_form()
    key_id = visit.form.get("key", "")
    ended = await visit.parts.store.write(
        partial(revoke_own, cookie=visit.cookie, key_id=key_id, now=visit.now)
    )
    return notices.back("key-revoked" if ended else "gone")


def revoke_own(db: Db, *, cookie: str, key_id: str, now: Millis) -> bool:
    """A job: one of this person's own keys. Somebody else's and one that is gone are answered alike."""
    session = sessions.find(db, cookie, now)
    if session is None:
        return False
    return api_keys.revoke(db, key_id, by=session.user.id, now=now, of_user=session.user.id)


def _row(key: ApiKey, vocabulary: Vocabulary, now: Millis) -> ApiKeyRow:
    used = ""
    if key.last_used_at is not None:
        used = ago(key.last_used_at, now) + (f" from {key.last_used_ip}" if key.last_used_ip else "")
    words = "; ".join(vocabulary.words(name) for name in parse(key.scope))
    return ApiKeyRow(
        id=key.id,
        name=key.name,
        hint=key.hint,
        may=words + (f" (tools: {key.tools})" if key.tools else ""),
        server=key.server or "",
        used=used,
        since=day(key.created_at),
        until="" if key.expires_at is None else day(key.expires_at),
        over=key.expires_at is not None and now >= key.expires_at,
    )
