"""What the pages of an account say after something was done on them. Each act leads back through here, to the page that it was on.

What it was done to comes along in the address, with a token of this browser beside it: nobody else can put words there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlencode

from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit
from auth.values.http_messages import WireReply
from auth.values.requester import shown

WHAT_CHARACTERS: Final = 200


class Notice(NamedTuple):
    words: str  # `{}` is what it was done to
    what: str = ""  # where that is not known
    done: bool = True  # False: nothing was


class Said(NamedTuple):
    words: str
    done: bool


NOTICES: Final[Mapping[str, Notice]] = MappingProxyType(
    {
        "joined": Notice("Welcome. You are signed in on this browser."),
        "login-ended": Notice("{} was ended. Its next request is refused.", "That login"),
        "login-denied": Notice("{} was not let in. Nothing was given to it.", "That device"),
        "key-ended": Notice("{} was ended. What uses it is refused from now on.", "That key"),
        "browser-ended": Notice("{} was signed out.", "That browser"),
        "browsers-ended": Notice("All other browsers were signed out."),
        "consent-forgotten": Notice("Forgotten. {} has to ask you again.", "That program"),
        "connection-ended": Notice(
            "{} was ended. Tools that were used with that account ask for one again.", "That connection"
        ),
        "passphrase-changed": Notice("Your passphrase was changed. All other browsers were signed out."),
        "person-disabled": Notice("{} is disabled. Everything it let in is paused.", "That account"),
        "person-enabled": Notice("{} is enabled. What was not ended works again.", "That account"),
        "person-changed": Notice("What {} may do was changed. It applies at once.", "that account"),
        "person-locked": Notice("{} is locked. All that it let in has ended.", "That account"),
        "person-unlocked": Notice(
            "{} is unlocked. No link was made: the account is over, or was changed meanwhile.", "That account"
        ),
        "person-removed": Notice("{} was removed. All that it let in has ended.", "That account"),
        "invitation-ended": Notice(
            "The invitation of {} was ended. Its link no longer works.", "that account"
        ),
        "upstream-accepted": Notice("Accepted: {}. They are offered from now on.", "what was shown"),
        "passkey-added": Notice("The passkey was added. You can sign in with it from now on."),
        "passkey-removed": Notice("The passkey was removed here. Delete it on its device, too."),
        "passkey-last": Notice(
            "That passkey is your only way in: add another, or a passphrase, first.", done=False
        ),
        "voucher-redeemed": Notice("Redeemed. What it was worth is yours now."),
        "cap-set": Notice("From now on no more than that is spent."),
        "cap-removed": Notice("That cap is gone. The server’s own caps still apply."),
        "gone": Notice("There was nothing to change: it had ended already.", done=False),
    }
)


def back(visit: PageVisit, page: str, did: str, what: str = "") -> WireReply:
    """To a page of the account, which says what was done, and to what."""
    query = {"did": did}
    if what:
        what = shown(what, WHAT_CHARACTERS)
        query |= {"what": what, "said": visit.token(_purpose(did, what))}
    return redirect(f"{page}?{urlencode(query)}")


def of(visit: PageVisit) -> Said | None:
    did, what = visit.query("did"), visit.query("what")
    notice = NOTICES.get(did)
    if notice is None:
        return None
    if not (what and visit.gave(_purpose(did, what), visit.query("said"))):
        what = notice.what
    return Said(notice.words.format(what), notice.done)


def _purpose(did: str, what: str) -> str:
    return f"said {did} {what}"
