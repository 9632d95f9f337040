"""A ranking of short texts by the words of a question (BM25, with words in their plain form)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import log
from typing import Final

# BM25: how soon a word that stands there once more counts no more, and how much a long text is held back.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.5

# Words of any script; of `getUserById` each by itself. Scripts without blanks are taken by single characters.
_WORD: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+"
)
_ENDINGS: Final = (
    ("ies", "y"), ("ers", ""), ("ing", ""), ("er", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""),
)  # fmt: skip
_STEM: Final = 3  # characters that stay of a word at least
_COMMON: Final = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "do",
        "for",
        "from",
        "have",
        "how",
        "i",
        "in",
        "is",
        "it",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "please",
        "some",
        "that",
        "the",
        "there",
        "this",
        "to",
        "want",
        "was",
        "we",
        "what",
        "when",
        "where",
        "which",
        "who",
        "will",
        "with",
        "you",
        "your",
    ]
)
_WORDS: Final = 2000  # of one text, or of a question
# Words that people say for each other's; one counts for a part of what the word itself would.
_ALIKE: Final = (
    "create make new add open write post put start",
    "delete remove drop erase",
    "get show read fetch view see look what tell",
    "list all every which find search",
    "update edit change modify set rename",
    "run start execute exec launch",
    "user person people member who",
    "issue ticket bug task",
    "page document wiki",
    "repository repo project",
    "log output",
)
_ALIKE_COUNTS: Final = 0.3


class TextRanking:
    """The texts, counted once. Each is a sequence of (words, weight)."""

    def __init__(self, texts: Iterable[Sequence[tuple[str, float]]]) -> None:
        self._counts: list[Mapping[str, float]] = []
        in_texts: Counter[str] = Counter()
        for parts in texts:
            counts: dict[str, float] = {}
            for text, weight in parts:
                for word in words_of(text):
                    counts[word] = counts.get(word, 0.0) + weight
            self._counts.append(counts)
            in_texts.update(counts.keys())
        lengths = [sum(counts.values()) for counts in self._counts]
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        self._held_back = [1 - _LENGTH + _LENGTH * length / (mean or 1.0) for length in lengths]
        number = len(self._counts)
        self._rarity = {
            word: log(1 + (number - there + 0.5) / (there + 0.5)) for word, there in in_texts.items()
        }

    def best(self, question: str) -> list[int]:
        """Return the places of the texts that share a word with the question, the best first."""
        asked = dict.fromkeys(words_of(question), 1.0)
        for word in list(asked):
            for other in _alike().get(word, ()):
                asked.setdefault(other, _ALIKE_COUNTS)
        scores = [self._score(place, asked) for place in range(len(self._counts))]
        found = [place for place, score in enumerate(scores) if score > 0]
        return sorted(found, key=lambda place: -scores[place])

    def _score(self, place: int, asked: Mapping[str, float]) -> float:
        counts, held_back = self._counts[place], self._held_back[place]
        return sum(
            part * self._rarity[word] * count * (_SATURATION + 1) / (count + _SATURATION * held_back)
            for word, part in asked.items()
            if (count := counts.get(word))
        )


def words_of(text: str) -> list[str]:
    """Return the words in their plain form, without those that are in every question."""
    found = (word.lower() for word in _WORD.findall(text)[:_WORDS])
    return [_plain(word) for word in found if word not in _COMMON]


@cache
def _alike() -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in _ALIKE:
        group = frozenset(_plain(word) for word in line.split())
        for word in group:
            found[word] = found.get(word, frozenset()) | group - {word}
    return found


def _plain(word: str) -> str:
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word
