"""Templates of command lines, `rg --line-number {pattern} {path}`: filled in for people to read, or as the arguments of a program.

A value is always one literal piece of text: what is shown is quoted for the place in which it stands, so that it can be pasted
into a POSIX shell, and what is run never sees a shell. Spec: agent3md/1 §3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

PLACEHOLDER: Final = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}")
# Outside quotes these are the shell's, and there is none; the second ones where a word begins.
_SHELL: Final = frozenset("|&;<>()$`*?[]\n")
_SHELL_AT_FIRST: Final = frozenset("~#")


class NeedsShell(ValueError):
    """The template is more than a program with its arguments; says what of it."""


def placeholders(template: str) -> Sequence[str]:
    """In their order, each once."""
    return tuple(dict.fromkeys(PLACEHOLDER.findall(template)))


def binary(template: str) -> str:
    """The program's name: its first word."""
    return template.split(maxsplit=1)[0] if template.strip() else ""


def filled(template: str, values: Mapping[str, str]) -> str:
    """With each value quoted for a POSIX shell. What has no value stays as it is written, to be seen."""
    found: list[str] = []
    quote = ""
    at = 0
    while at < len(template):
        placeholder = PLACEHOLDER.match(template, at)
        if placeholder and placeholder[1] in values:
            found.append(_quoted(values[placeholder[1]], quote))
            at = placeholder.end()
            continue
        character = template[at]
        if character == "\\" and quote != "'":
            found.append(template[at : at + 2])
            at += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        found.append(character)
        at += 1
    return "".join(found)


def arguments(template: str, values: Mapping[str, str]) -> list[str]:
    """The program and its arguments, by the template's own words: no value is ever split. Raises `NeedsShell`, and `KeyError`
    for what has no value."""
    found: list[str] = []
    word: list[str] | None = None
    quote = ""
    at = 0
    while at < len(template):
        character = template[at]
        placeholder = PLACEHOLDER.match(template, at)
        if placeholder:
            word = [*(word or []), values[placeholder[1]]]
            at = placeholder.end()
            continue
        if quote == "'":
            quote = "" if character == "'" else quote
            word = [*(word or []), *([character] if quote else [])]
        elif character == "\\":
            if at + 1 == len(template):
                raise NeedsShell("it ends in a backslash")
            following = template[at + 1]
            kept = "\\" if quote and following not in '"\\$`' else ""
            word = [*(word or []), kept + following]
            at += 1
        elif quote:
            if character in "$`":
                raise NeedsShell(f"it has {character} for a shell to replace")
            quote = "" if character == quote else quote
            word = [*(word or []), *([character] if quote else [])]
        elif character in "\"'":
            quote = character
            word = word or []
        elif character in _SHELL or (word is None and character in _SHELL_AT_FIRST):
            raise NeedsShell(f"it has {character!r}, which only a shell understands")
        elif character in " \t":
            if word is not None:
                found.append("".join(word))
                word = None
        else:
            word = [*(word or []), character]
        at += 1
    if quote:
        raise NeedsShell("a quote in it is not closed")
    if word is not None:
        found.append("".join(word))
    return found


def _quoted(value: str, quote: str) -> str:
    """For the place in which it stands: bare, or inside quotes of the template's own."""
    if quote == '"':
        return re.sub(r'([\\"$`])', r"\\\1", value)
    inner = value.replace("'", "'\\''")
    return inner if quote else f"'{inner}'"
