"""The first passkey or a new passphrase, which somebody chooses on the page of a one-time link, and the job that uses the link up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from auth.context.identity_parts import HashingBusy
from auth.pages import passkey_forms
from auth.pages.page_visit import PageVisit
from auth.people import passkeys, user_accounts
from auth.people.browser_sessions import NewSession
from auth.people.passkeys import NotAdded, PasskeyToAdd
from auth.people.user_accounts import UnfitEntry, User
from auth.values.database import Db
from auth.values.http_messages import WireReply

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenCredentials:
    """One of both."""

    passkey: PasskeyToAdd | None = None
    passphrase_hash: str | None = field(default=None, repr=False)


async def choose(
    visit: PageVisit, user_id: str, *, passkey: bool, back: str, again: Callable[..., WireReply]
) -> ChosenCredentials | WireReply:
    """Read what the form brings; `again` makes the page that says what is wrong with it. `passkey`: it may be one."""
    if passkey and visit.form.get("credential"):
        made = passkey_forms.new_passkey(visit, user_id)
        return again(problem=made) if isinstance(made, str) else ChosenCredentials(passkey=made)
    passphrase = user_accounts.fit_passphrase(visit.form.get("passphrase", ""))
    if isinstance(passphrase, UnfitEntry):
        return again(problem=passphrase.sentence, about="passphrase")
    if passphrase != user_accounts.fit_passphrase(visit.form.get("passphrase_again", "")):
        return again(problem=user_accounts.DIFFER, about="passphrase_again")
    hashing = visit.parts.hashing
    try:
        with hashing.place(first=True) as place:
            await place.turn()
            salt = visit.parts.entropy(user_accounts.SALT_BYTES)
            return ChosenCredentials(passphrase_hash=await hashing.hash_passphrase(passphrase, salt))
    except HashingBusy:
        return visit.hashing_busy(back=(back, "Back"))


def take_and_sign_in(
    db: Db, *, take: Callable[..., User | T], chosen: ChosenCredentials, fresh: NewSession
) -> User | T | NotAdded:
    """Use a link up by `take`, as a job, and sign its holder in, with the passkey if there is one."""
    new, who, now = chosen.passkey, fresh.who, fresh.now
    if new is not None:
        added = passkeys.add(db, new, who=who, now=now)
        if isinstance(added, NotAdded):
            return added
    outcome = take(db, passphrase_hash=chosen.passphrase_hash, who=who, now=now)
    if isinstance(outcome, User):
        fresh.begin(db, outcome.id)
    elif new is not None:
        passkeys.take_back(db, new, who=who, now=now)
    return outcome
