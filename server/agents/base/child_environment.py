"""The surroundings of a child process: of our environment what programs need to run, what the settings name, and no secret
by accident; of the files all but those that are kept out, or only those that the settings give it; and the user that it is.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import Meta

from server.lib.shortened import short_name
from server.settings.secret_reference import read_secret

if TYPE_CHECKING:
    from server.agents.base.program_confinement import Confinement
    from server.lib.landlock import ForbiddenPaths
    from server.lib.other_user import OtherUser

PASSED: Final = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
        "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
    }
)  # fmt: skip
LOCALE: Final = "LC_"
# The launcher of the one-file executable leaves notes to its own child; another such program would take them for its own.
LAUNCHERS: Final = ("_PYI_", "_MEI")
# What is different for another user: where its own files are.
OF_A_USER: Final = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP"})
NO_HOME: Final = "/nonexistent"
# Where the libraries of the executable are, and what stood there before: other programs need their own.
LIBRARIES: Final = "LD_LIBRARY_PATH"
LIBRARIES_BEFORE: Final = "LD_LIBRARY_PATH_ORIG"
VARIABLES: Final = 100
# Names the caller to a child that serves one alone.
CALLER: Final = "OSTIARY_CALLER"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_REFERENCE: Final = re.compile(r"(?:env|file):.+")

Written = Sequence[str] | Mapping[str, str]  # names to pass on, or names with values or references
EnvironmentSetting: TypeAlias = Annotated[
    tuple[str, ...] | Mapping[str, str],
    Meta(description='names of variables to pass on, or a table, e.g. { API_KEY = "env:AGENT_KEY" }'),
]


class ChildEnvironment(dict[str, str]):
    """The variables of a child process, the paths that it is kept out of (None: of none), its own bounds, and the user that it is where that is
    another."""

    def __init__(
        self,
        variables: Mapping[str, str],
        kept_out: ForbiddenPaths | None,
        confinement: Confinement | None = None,
        user: OtherUser | None = None,
    ) -> None:
        super().__init__(variables)
        self.kept_out: Final = kept_out
        self.confinement: Final = confinement
        self.user: Final = user

    def with_caller(self, name: str) -> ChildEnvironment:
        """Return the same for the child of one caller, who is named in a variable."""
        return ChildEnvironment({**self, CALLER: name}, self.kept_out, self.confinement, self.user)


def environment_problems(written: Written) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write). Holds no value."""
    found: list[tuple[str, str]] = []
    if len(written) > VARIABLES:
        found.append(("environment", f"has more than {VARIABLES} entries"))
    found += [
        ("environment", f"{short_name(name)!r} is not the name of a variable")
        for name in written
        if not _NAME.fullmatch(name)
    ]
    if isinstance(written, Mapping):
        found += [
            (f"environment.{name}", "must not hold a zero byte")
            for name, value in written.items()
            if "\0" in value
        ]
    return found


def child_environment(
    written: Written,
    ours: Mapping[str, str] = os.environ,
    *,
    frozen: bool = getattr(sys, "frozen", False),
    kept_out: ForbiddenPaths | None = None,
    confinement: Confinement | None = None,
    user: OtherUser | None = None,
) -> ChildEnvironment:
    """Return what a child gets to see. A variable that is to be passed on and is not set here is left out. Raises
    `SecretUnreadable`."""
    clean = {name: value for name, value in ours.items() if not name.startswith(LAUNCHERS)}
    if frozen:
        clean.pop(LIBRARIES, None)
    if (before := clean.pop(LIBRARIES_BEFORE, None)) is not None:
        clean[LIBRARIES] = before
    names = PASSED if isinstance(written, Mapping) else PASSED.union(written)
    passed = {name: value for name, value in clean.items() if name in names or name.startswith(LOCALE)}
    asked = {name: passed[name] for name in written if name in passed}
    if user is not None:
        passed = {name: value for name, value in passed.items() if name not in OF_A_USER}
        passed |= {"HOME": user.home or NO_HOME, "USER": user.name, "LOGNAME": user.name}
    if confinement is not None:
        passed |= confinement.variables()
    passed |= (
        {name: _value(value) for name, value in written.items()} if isinstance(written, Mapping) else asked
    )
    return ChildEnvironment(passed, kept_out, confinement, user)


def _value(written: str) -> str:
    return read_secret(written).reveal() if _REFERENCE.fullmatch(written) else written
