"""Parts of the commands about people: a one-time link on the screen, words for states."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from server.cli import terminal


def may_show(as_json: bool) -> None:
    """Raise `Misuse` where a link would end up in a file or a log instead of before somebody's eyes."""
    if not as_json and not terminal.is_terminal(sys.stdout):
        raise terminal.Misuse(
            "the link is a secret, and this is no terminal", hint="--json prints it all the same"
        )


def show_link(answer: Mapping[str, Any], words: str) -> None:
    """Show the link, how long it works, and a picture of it where a phone could follow it."""
    from server.cli.use.login_screen import draw_qr
    from server.lib.oauth_client.addresses import is_loopback

    terminal.out(answer["url"])
    reachable = not is_loopback(answer["url"])
    minutes = round((answer["link_expires_at"] / 1000 - time.time()) / 60)  # it was made a moment ago
    terminal.tell(f"{words}; it works once, for {terminal.duration(minutes * 60)}")
    if reachable and terminal.is_terminal(sys.stderr):
        terminal.say()
        draw_qr(answer["url"])
    elif not reachable:
        terminal.say("it leads to this machine; elsewhere it needs the server's public address")


def state_of(user: Mapping[str, Any]) -> str:
    """Say how things stand with somebody, in a word or two."""
    if user["state"] == "invited" and not user["link_expires_at"]:
        return "invited, link over"
    if user["over"] and user["state"] in ("enabled", "invited"):
        return "over"
    return user["state"]


def tools_of(user: Mapping[str, Any]) -> str:
    return user["tools"] or "all"
