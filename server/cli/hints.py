"""Commands that are suggested, as they have to be typed to mean the same server as the command that suggests them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote
from typing import Final

import click

# In a context's `meta`: which server the running command was told to mean.
GIVEN: Final = "server.cli.hints.given"

# A command, perhaps one of its own, and its arguments as far as they cannot be prose: CODE, or such a code, or an id.
_SUGGESTED: Final = re.compile(
    r"(?<![\w./-])ostiary ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?((?: (?:[A-Z][A-Z0-9-]+|[a-z]+_[a-z0-9]{8,})\b)*)"
)


def meant_here() -> Mapping[str, str]:
    """By the options of the command that runs; empty where it was told nothing."""
    context = click.get_current_context(silent=True)
    return {} if context is None else context.meta.get(GIVEN, {})


def for_the_same(text: str, given: Mapping[str, str]) -> str:
    """`text` with the options that say which server is meant, in each command there that takes them."""
    return _SUGGESTED.sub(lambda found: _told(found, given), text) if given else text


def _told(found: re.Match[str], given: Mapping[str, str]) -> str:
    from server.cli import COMMANDS, load

    first, second, _ = found.groups()
    if first not in COMMANDS:
        return found[0]
    command, end = load(first), found.end() if second is None else found.end(1)
    if isinstance(command, click.Group):
        child = command.commands.get(second or "")
        if child is None:
            return found[0]
        command, end = child, found.end()
    taken = {option for parameter in command.params for option in parameter.opts}
    rest = found.string[end:].partition("`")[0].split(" ")
    options = [
        f" {option} {quote(value)}"
        for option, value in given.items()
        if option in taken and option not in rest  # it may say so itself
    ]
    at = end - found.start()
    return f"{found[0][:at]}{''.join(options)}{found[0][at:]}"
