"""The words of an upstream about its tools, prompts, resources and pages, as values that can be compared: pins, and the judgement of an offer.

A model acts on these texts. An upstream that changes one after somebody has looked at it (a "rug pull") would speak with the
authority of the first. So each is pinned by the digest of all that it says, and a definition that differs is not offered until somebody at the
machine has seen the difference. The content of a page counts as well, by its digest. Pure; rows are pin_rows.py's, showing definition_differences.py's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from server.lib.shortened import short_name

DefinitionKind: TypeAlias = Literal["tool", "prompt", "template", "instructions", "resource", "page"]
KINDS: Final[tuple[DefinitionKind, ...]] = ("tool", "prompt", "template", "instructions", "resource", "page")
# Those that were not pinned from the first version on.
LATER_KINDS: Final = frozenset[DefinitionKind]({"resource", "page"})

# Kept to be shown. The digest is of all of it, however long; what is longer is never accepted nor offered, since nobody can have seen its end.
MAX_KEPT: Final = 64 * 1024


class DefinitionKey(msgspec.Struct, frozen=True, order=True):
    """The name of a definition."""

    kind: DefinitionKind
    name: str  # as the upstream has it; of a template, its URI template; of a resource or page, its address; of instructions, "text"


# How the upstream as a whole is meant to be used. There is one such text.
INSTRUCTIONS: Final = DefinitionKey("instructions", "text")


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """All that is said of one thing, as a text and its digest."""

    key: DefinitionKey
    digest: str
    text: str  # canonical JSON, of a large one its beginning

    @property
    def is_whole(self) -> bool:
        """True if whoever is shown `text` has seen all of it."""
        return is_whole(self.text)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an offer: those that are believed, and those that are not."""

    allowed: frozenset[DefinitionKey]
    new: tuple[Definition, ...]  # nobody has seen it
    changed: tuple[Definition, ...]  # it is not what somebody has seen
    gone: tuple[DefinitionKey, ...]  # accepted, and not offered now

    @property
    def blocked(self) -> tuple[Definition, ...]:
        return (*self.new, *self.changed)


def define(kind: DefinitionKind, name: str, said: object) -> Definition:
    """Return the definition. `said`: all that the upstream says of it, as a struct or as plain JSON. Raises `ValueError` for what is nested too deeply."""
    try:
        text = canonical(msgspec.to_builtins(said))
    except RecursionError:
        raise ValueError(f"the {kind} {short_name(name)} is nested too deeply") from None
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Definition(key=DefinitionKey(kind, name), digest=digest, text=text[:MAX_KEPT])


def is_whole(text: str) -> bool:
    """Say whether a text that was kept is all of it."""
    return len(text) < MAX_KEPT


def canonical(value: Any) -> str:
    """Return one text for equal JSON, in whatever order its members came. ASCII: half characters have no other form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def judge(pins: Mapping[DefinitionKey, str], offered: Sequence[Definition]) -> Verdict:
    """Judge an offer by the digests in `pins`. If a name is offered twice, neither is allowed: a caller would be given one and see the other. A
    definition that nobody can be shown whole is never allowed."""
    seen: dict[DefinitionKey, Definition] = {}
    twice: set[DefinitionKey] = set()
    for definition in offered:
        if definition.key in seen and seen[definition.key].digest != definition.digest:
            twice.add(definition.key)
        seen.setdefault(definition.key, definition)
    new = tuple(each for key, each in seen.items() if key not in pins)
    changed = tuple(
        each
        for key, each in seen.items()
        if key in pins and (pins[key] != each.digest or key in twice or not each.is_whole)
    )
    held = {each.key for each in (*new, *changed)}
    return Verdict(
        allowed=frozenset(seen.keys() - held),
        new=new,
        changed=changed,
        gone=tuple(sorted(key for key in pins.keys() - seen.keys() if key.kind != "resource")),
    )


def seal_of(definitions: Sequence[Definition]) -> str:
    """Return one digest for several definitions: what was shown is what is accepted, or nothing is."""
    listed = sorted((each.key.kind, each.key.name, each.digest) for each in definitions)
    return hashlib.sha256(canonical(listed).encode()).hexdigest()
