"""Settings of an agent that is a Python file or module of its owner's. Apart from what runs it, because every command reads settings."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Final

from msgspec import Meta

from server.agents.base.backend import SECRET_HEADERS
from server.agents.base.child_environment import EnvironmentSetting, environment_problems
from server.agents.python.offer import LONGEST_SECONDS
from server.lib.shortened import short_name
from server.settings.program_rights import ProgramRights, given, rights_problems

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class PythonConfig(ProgramRights, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent]]` with `kind = "python"`."""

    file: Annotated[str, Meta(max_length=4096, description='the path of a Python file, e.g. "agent.py"')] = ""
    module: Annotated[
        str, Meta(max_length=400, description='the name of a Python module, e.g. "company.agent"')
    ] = ""
    python: Annotated[str, Meta(max_length=4096, description="the path of a Python interpreter")] = ""
    threads: Annotated[int, Meta(ge=1, le=256, description="a number from 1 to 256")] = 8
    environment: EnvironmentSetting = ()
    unconfined: Annotated[bool, Meta(description="true or false")] = False
    reload: Annotated[bool, Meta(description="true or false")] = True
    in_process: Annotated[bool, Meta(description="true or false")] = False
    deadline_seconds: Annotated[
        float, Meta(ge=1, le=LONGEST_SECONDS, description="seconds from 1 to 86400")
    ] = 300.0
    calls_at_once: Annotated[int, Meta(ge=1, le=10_000, description="a number from 1 to 10000")] = 64
    start_seconds: Annotated[float, Meta(ge=1, le=600, description="seconds from 1 to 600")] = 20.0
    include_tags: Annotated[tuple[str, ...], Meta(max_length=64, description='tags, e.g. ["public"]')] = ()
    exclude_tags: Annotated[tuple[str, ...], Meta(max_length=64, description='tags, e.g. ["draft"]')] = ()
    pass_headers: Annotated[
        tuple[str, ...], Meta(max_length=32, description='names of headers, e.g. ["traceparent"]')
    ] = ()

    def __repr__(self) -> str:  # the environment may hold a value that should have been a reference
        return f"{type(self).__name__}(file={self.file!r}, module={self.module!r})"


def problems(config: PythonConfig, *, frozen: bool = getattr(sys, "frozen", False)) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold."""
    found = [
        *environment_problems(config.environment),
        *rights_problems(config, unconfined=config.unconfined),
    ]
    if not config.file and not config.module:
        found.append(("file", 'is missing; write the path of a Python file, e.g. "agent.py", or set module'))
    if config.file and config.module:
        found.append(("module", "contradicts file; write one of the two"))
    if config.module and not _MODULE.fullmatch(config.module):
        found.append(("module", 'is not the name of a module; write e.g. "company.agent", or set file'))
    for name in config.pass_headers:
        if not _HEADER.fullmatch(name):
            found.append(("pass_headers", f"{short_name(name)!r} is not the name of a header"))
        elif name.lower() in SECRET_HEADERS:
            found.append(
                ("pass_headers", f"{name} is never passed on, because it lets somebody in; leave it out")
            )
    if config.in_process:
        if frozen:
            found.append(
                (
                    "in_process",
                    "works only where the server runs from its source; leave it out, or install from source",
                )
            )
        found += [
            (key, "has no effect with in_process; leave it out")
            for key in ("python", "environment")
            if getattr(config, key)
        ]
        found += [(key, "has no effect with in_process; leave it out") for key in given(config)]
    return found
