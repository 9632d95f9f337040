"""Proving oneself once more before an act that a stolen or unattended browser must not be enough for (oauth.md §4.2).

A step that needs it calls `ask` first. Whoever proved themselves lately notices nothing; anybody else gets a page that asks
and then sends the very same form again. What is asked on the confirm page of a device is in confirm.py and decision.py.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from auth import sessions, users
from auth.db import Db
from auth.model import Millis
from auth.policy import MINUTE
from auth.requester import Requester
from auth.sessions import Session
from auth.users import Admitted, Throttled, Unfit
from auth.visit import ATTEMPTS_KEY, Visit
from auth.wire import Reply

LATELY: Final[Millis] = 15 * MINUTE
NOT_REPEATED: Final = frozenset({"passphrase", "form_token"})


async def ask(visit: Visit, session: Session, why: str) -> Reply | None:
    """None if this person has proven themselves within `LATELY`, or does so with this form; else the page that asks for it.

    `why` ends the sentence "Give your passphrase …", like "to end somebody's login". The form's own token must have been
    looked at already. A job that follows may rely on `lately` with the session as it finds it.
    """
    if lately(session, visit.now):
        return None
    if "passphrase" not in visit.form:
        return _page(visit, session, why, problem="")
    passphrase = users.fit_passphrase(visit.form["passphrase"])
    if isinstance(passphrase, Unfit):
        return _page(visit, session, why, problem="That is not your passphrase.")
    admitted = await visit.parts.store.write(
        partial(
            users.admit,
            name=session.user.name,
            key=visit.parts.subkey(ATTEMPTS_KEY),
            who=visit.who,
            now=visit.now,
        )
    )
    if isinstance(admitted, Throttled):
        return visit.too_many(admitted.until, back=("/account", "Back"))
    matched = await visit.parts.verify_passphrase(passphrase, admitted.passphrase_hash)
    proven = await visit.parts.store.write(
        partial(
            _conclude,
            cookie=visit.cookie,
            admitted=admitted,
            matched=matched,
            who=visit.who,
            now=visit.now,
        )
    )
    return None if proven else _page(visit, session, why, problem="That is not your passphrase.")


def lately(session: Session, now: Millis) -> bool:
    return now - session.auth_time <= LATELY


def _conclude(
    db: Db, *, cookie: str, admitted: Admitted, matched: bool, who: Requester, now: Millis
) -> bool:
    user = users.conclude(db, admitted, matched=matched, event="user.proven_again", who=who, now=now)
    session = sessions.find(db, cookie, now)
    if user is None or session is None or session.user.id != user.id:
        return False
    sessions.proven_again(db, session, now)
    return True


def _page(visit: Visit, session: Session, why: str, *, problem: str) -> Reply:
    return visit.page(
        "prove.html",
        title="Is it you?",
        status=400 if problem else 200,
        why=why,
        account=session.user.name,
        has_passphrase=session.user.passphrase_hash is not None,
        action=visit.request.path,
        form_token=visit.form.get("form_token", ""),
        repeated=tuple((name, value) for name, value in visit.form.items() if name not in NOT_REPEATED),
        scopes=visit.scopes,
        problem=problem,
    )
