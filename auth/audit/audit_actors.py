"""Who an actor of the audit trail is, for people: `user:usr_…`, `client:…`, `local:0`, `local:start`, `anonymous`."""

from __future__ import annotations

from typing import Final

_LOCAL: Final = "local:"


def shown_actor(actor: str, *, person: str = "", program: str = "") -> str:
    """`person` and `program` as far as their names are known."""
    kind, _, name = actor.partition(":")
    if kind == "user":
        return person or name  # of somebody who is gone the id alone is left
    if kind == "client":
        return f"the program “{program or name}”"  # it chose its name itself
    if actor.startswith(_LOCAL):
        # Somebody at the machine has a number; the server itself, a word for when.
        return f"{_account(int(name))} (at the machine)" if name.isdecimal() else "the server"
    return "somebody" if actor == "anonymous" else actor


def _account(uid: int) -> str:
    import pwd  # for whoever reads names: a server that writes JSON has none of it

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):  # a container knows its own accounts only
        return f"uid {uid}"
