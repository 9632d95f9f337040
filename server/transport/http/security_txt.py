"""/.well-known/security.txt (RFC 9116): whom somebody tells who has found a weakness of this server. By the setting `security_contact` alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from auth.endpoints import json_replies
from auth.values.http_messages import WireReply, WireRequest

PATH: Final = "/.well-known/security.txt"
READ: Final = ("GET", "HEAD", "OPTIONS")
# §2.5.5: less than a year. It is made anew each day, so this is how long a copy counts whose server is gone.
GOOD_DAYS: Final = 30
_TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff"))


class SecurityTxt:
    """`issuer`: the public address; it is named where it is https, as the file has to be."""

    def __init__(self, contacts: Sequence[str], issuer: str, clock: Callable[[], int]) -> None:
        self._contacts = contacts
        self._issuer = issuer
        self._clock = clock

    def answer(self, request: WireRequest) -> WireReply:
        """To a request for `PATH`."""
        if request.method == "OPTIONS":
            return json_replies.preflight(READ)
        if request.method not in READ:
            return json_replies.wrong_method(READ)
        return json_replies.document(request, self.text().encode(), kind=_TEXT)

    def text(self) -> str:
        today = datetime.fromtimestamp(self._clock() / 1000, UTC).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        expires = (today + timedelta(days=GOOD_DAYS)).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = [*(f"Contact: {contact}" for contact in self._contacts), f"Expires: {expires}"]
        if self._issuer.startswith("https://"):
            fields.append(f"Canonical: {self._issuer}{PATH}")
        return "\n".join(fields) + "\n"
