"""The words of a command, as its author wrote them, filled with the arguments of a call: no shell, and never more words than were written.

`{name}` stands for an argument, `{{` and `}}` for braces. A word stays one word whatever is filled in. Words in a list of their own, such as
a flag and its value, are left out together where an argument of theirs is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from server.agents.command.interpreters import refuse_code

Written: TypeAlias = Sequence[str | Sequence[str]]

# Linux takes no longer word, the end that it adds included.
WORD_BYTES: Final = 128 * 1024 - 1
LINE_BYTES: Final = 1024 * 1024

_PART: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]{0,127})\}|[{}]")


class UnfitArgument(Exception):
    """What a call brought cannot be a word of the command; the text is for the caller."""


class Word(msgspec.Struct, frozen=True):
    """Texts and names by turns: a name stands between two texts."""

    texts: tuple[str, ...]
    names: tuple[str, ...] = ()

    def filled(self, values: Mapping[str, Any]) -> str | None:
        """None where an argument is missing."""
        if not self.names:
            return self.texts[0]
        if any(values.get(name) is None for name in self.names):
            return None
        parts = [self.texts[0]]
        for name, text in zip(self.names, self.texts[1:], strict=True):
            parts += [as_word(values[name]), text]
        return "".join(parts)

    @property
    def begins_with_argument(self) -> bool:
        return bool(self.names) and not self.texts[0]


def read_word(written: str) -> Word:
    """Raises `ValueError`."""
    texts: list[str] = []
    names: list[str] = []
    text, at = "", 0
    for found in _PART.finditer(written):
        text += written[at : found.start()]
        at = found.end()
        if found[1] is not None:
            texts.append(text)
            names.append(found[1])
            text = ""
        elif found[0] in ("{{", "}}"):
            text += found[0][0]
        else:
            raise ValueError(f'has a lone brace in "{written[:60]}"; write {{{{ or }}}} for a brace')
    texts.append(text + written[at:])
    return Word(tuple(texts), tuple(names))


def as_word(value: Any) -> str:
    """Texts as they are, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class ArgvTemplate:
    """`run` of a tool. Raises `ValueError` for one that nobody should be given."""

    def __init__(self, written: Written, *, allow_dashes: bool = False, fed: bool = False) -> None:
        """`fed`: the program reads what a call brings."""
        self._groups = [
            tuple(read_word(word) for word in ((group,) if isinstance(group, str) else group))
            for group in written
        ]
        self._always = [isinstance(group, str) for group in written]
        self._allow_dashes = allow_dashes
        if not written or not isinstance(written[0], str) or not written[0]:
            raise ValueError(
                'is missing; write the program and its arguments, e.g. ["weather", "--", "{city}"]'
            )
        if self._groups[0][0].names:
            raise ValueError("lets callers choose the program; write its name")
        words = [text for group in self._groups for word in group for text in word.texts]
        if any(not group for group in self._groups) or any("\0" in text for text in words):
            raise ValueError("has an empty list, or a zero byte")
        for words in self._ways():
            refuse_code(words, allow_dashes=allow_dashes, fed=fed)

    def _ways(self) -> Iterator[Sequence[Word]]:
        """All words; those without one of the lists that may be left out; and those without all of them."""
        left_out = [place for place, always in enumerate(self._always) if not always]
        ways: list[set[int]] = [set(), *({place} for place in left_out), set(left_out)]
        for without in ways:
            yield [word for place, group in enumerate(self._groups) if place not in without for word in group]

    @property
    def program(self) -> str:
        return self._groups[0][0].texts[0]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for group in self._groups for word in group for name in word.names)

    @property
    def needed(self) -> frozenset[str]:
        """Arguments whose words are in no list, which could be left out with them."""
        return frozenset(
            name
            for group, always in zip(self._groups, self._always, strict=True)
            for word in group
            for name in word.names
            if always
        )

    def filled(self, program: str, values: Mapping[str, Any]) -> list[str | bytes]:
        """`program` takes the place of the first word. Raises `UnfitArgument`."""
        words: list[str | bytes] = [program]
        size = 0
        guarded = self._allow_dashes
        for group in self._groups[1:]:
            filled = [word.filled(values) for word in group]
            if None in filled:
                continue
            for word, text in zip(group, filled, strict=True):
                assert text is not None
                if not guarded and word.begins_with_argument and text.startswith("-"):
                    raise UnfitArgument(f"{word.names[0]}: must not begin with a dash")
                if not word.names and text == "--":
                    guarded = True
                encoded = _encoded(text, word)
                size += len(encoded) + 1
                words.append(encoded)
        if size > LINE_BYTES:
            raise UnfitArgument("the arguments are too long together for a command")
        return words


def _encoded(text: str, word: Word) -> bytes:
    name = word.names[0] if word.names else "run"
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise UnfitArgument(f"{name}: is not whole text") from None
    if b"\0" in encoded:
        raise UnfitArgument(f"{name}: must not hold a zero byte")
    if len(encoded) > WORD_BYTES:
        raise UnfitArgument(f"{name}: is too long for a command")
    return encoded
