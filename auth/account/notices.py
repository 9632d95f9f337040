"""What the account page says after something was done on it. The page is in page.py; each act leads back through here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from auth.pages import redirect
from auth.values.wire import WireReply


class Notice(NamedTuple):
    words: str
    done: bool = True  # False: nothing was


NOTICES: Final[Mapping[str, Notice]] = MappingProxyType(
    {
        "joined": Notice("Welcome. You are signed in on this browser."),
        "login-ended": Notice("That login was ended. Its next request is refused."),
        "login-denied": Notice("Denied. Whatever asked for it is told so, and has to ask again."),
        "key-revoked": Notice("That key was revoked. What uses it is refused from now on."),
        "browser-ended": Notice("That browser was signed out."),
        "browsers-ended": Notice("All other browsers were signed out."),
        "consent-forgotten": Notice("Forgotten. That program has to ask you again."),
        "connection-ended": Notice("Disconnected. Tools that were used with that account ask for one again."),
        "passphrase-changed": Notice("Your passphrase was changed. All other browsers were signed out."),
        "person-disabled": Notice("That account is disabled. Everything it let in pauses."),
        "person-enabled": Notice("That account is enabled. What was not revoked works again."),
        "passkey-added": Notice("The passkey was added. You can sign in with it from now on."),
        "passkey-removed": Notice("The passkey was removed here. Delete it on its device, too."),
        "passkey-last": Notice(
            "That passkey is your only way in: add another, or a passphrase, first.", done=False
        ),
        "voucher-redeemed": Notice("Redeemed. What it was worth is yours now."),
        "cap-set": Notice("From now on no more than that is spent."),
        "cap-removed": Notice("That cap is gone. What the server's own caps say still counts."),
        "gone": Notice("There was nothing to change: it had ended already.", done=False),
    }
)


def back(did: str) -> WireReply:
    """To the account page, which says what was done."""
    return redirect(f"/account?did={did}")


def of(did: str) -> Notice | None:
    return NOTICES.get(did)
