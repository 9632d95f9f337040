"""When a login last called: to the minute, written now and then by whoever writes calls down. A refresh is no call."""

from __future__ import annotations

from collections.abc import Mapping

from auth.values.db import Db
from auth.values.model import Millis


def note(db: Db, called: Mapping[str, Millis]) -> None:
    """A job. `called`: by the id of the login; one that is not there is passed over."""
    for grant_id, at in called.items():
        db.execute(
            "UPDATE grants SET called_at = ? WHERE id = ? AND (called_at IS NULL OR called_at < ?)",
            at,
            grant_id,
            at,
        )
