"""Skills behind an endpoint: four tools that find and read them, each skill as a prompt, each plane or file as a resource.

A model reads the one skill that it needs instead of all of them. Nothing of a skill is run here. The document is read at the
start and again whenever it changes; a version that cannot be read is told to the log, and the one before stays.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
import trio
from msgspec import UNSET, Meta

from server.agents.base import file_watch
from server.agents.base.backend import (
    Announce,
    Completing,
    Feature,
    NoSuchResource,
    PromptGet,
    ResourceRead,
    ToolCall,
)
from server.agents.skills.skills_book import SkillBook, as_chain, as_prompt
from server.agents.skills.skills_folder import MAX_FILES
from server.agents.skills.skills_source import CannotOpenSkills, OpenedSkills, open_skills
from server.lib.log.logger import Logger
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import (
    Implementation,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
    Tool,
    ToolAnnotations,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult, failed_result, text_result
from server.mcp.skills_extension import ListedSkill

# What clients are told they talk to, where a server is nothing but these skills (the founding system's own words).
INTRODUCED: Final = "agent-3md:{name}"
INTRODUCED_VERSION: Final = "0.1.0"
# The longest message that this kind of server takes on a pipe.
LINE_KIB: Final = 10 * 1024
TOLD_FAULTS: Final = 5
DOCUMENT: Final[frozenset[Feature]] = frozenset({"resources", "prompts", "subscribe"})
FOLDER: Final[frozenset[Feature]] = frozenset({*DOCUMENT, "skills"})

_READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_INDENTED: Final = 2
_NAMED: Final = {"name": "the name of the skill, as list_skills or route_skill gave it"}


class SkillsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent]]` with `kind = "skills"`."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4096,
            description='the path of a .3md document or of a folder of SKILL.md files, e.g. "agent.3md"',
        ),
    ]
    prefix: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.-]{0,40}$",
            description='what the names of tools and prompts begin with, e.g. "dev_"',
        ),
    ] = ""
    reload: Annotated[bool, Meta(description="true or false")] = True


class SkillsBackend:
    """A `Backend`, a `LibraryBackend`, a `SkillLibrary` and `Active`. Raises `ValueError` for a document that cannot be used."""

    def __init__(self, config: SkillsConfig, *, name: str, log: Logger) -> None:
        """Read the document. `name` is for the log."""
        self._config = config
        self._name = name
        self._log = log
        self._path = Path(config.path).expanduser().absolute()
        self._known = self._look()  # before it is read: what is written meanwhile is read again
        self._opened = open_skills(self._path)
        self._tell_faults()

    @property
    def opened(self) -> OpenedSkills:
        return self._opened

    def introduction(self) -> Implementation:
        name = INTRODUCED.format(name=self._opened.book.name)
        return Implementation(name=name, version=INTRODUCED_VERSION)

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        """Look whether the document changes."""
        task_status.started()
        while self._config.reload:
            await file_watch.changed(self._known)
            self._known = await trio.to_thread.run_sync(self._look)
            try:
                opened = await trio.to_thread.run_sync(open_skills, self._path)
            except CannotOpenSkills as problem:
                self._log.warning("skills.not_reloaded", agent=self._name, reason=str(problem)[:2000])
                continue
            before, self._opened = self._opened, opened
            self._tell_faults()
            announce.lists()
            texts = {page.uri: page for page in before.book.pages}
            for page in opened.book.pages:
                if texts.get(page.uri, page) != page:
                    announce.resource(page.uri)

    def _look(self) -> file_watch.Stamps:
        """Look at the document; of a folder, at all that is in it: a new file changes the folder that it is in."""
        inside = islice(self._path.rglob("*"), 2 * MAX_FILES) if self._path.is_dir() else ()
        return file_watch.look([str(self._path), *map(str, inside)])

    def _tell_faults(self) -> None:
        faults = [str(fault) for fault in self._opened.faults if fault.level == "error"]
        if faults:
            self._log.warning(
                "skills.faults", agent=self._name, count=len(faults), faults=[each[:300] for each in faults[:TOLD_FAULTS]]
            )  # fmt: skip

    # ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def tools(self) -> Sequence[Tool]:
        name = self._opened.book.name
        return [
            self._tool(
                "list_skills",
                f"List every skill of {name}: its name, what leads to it and what it costs, without its instructions.",
                {},
            ),
            self._tool(
                "route_skill",
                "Find the skills that fit a request, the best first. Pass the request in the person's own words.",
                {"text": "what is asked for"},
            ),
            self._tool(
                "get_skill",
                "Read the instructions of one skill. Read one before you do what it is for, and no more than you need.",
                _NAMED,
            ),
            self._tool(
                "resolve_skill",
                "Read the instructions of a skill together with those of every skill that it depends on.",
                _NAMED,
            ),
        ]

    def _tool(self, name: str, description: str, takes: Mapping[str, str]) -> Tool:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {key: {"type": "string", "description": text} for key, text in takes.items()},
            "additionalProperties": False,
        }
        if takes:
            schema["required"] = list(takes)
        return Tool(
            name=self._config.prefix + name, description=description, input_schema=schema, annotations=_READS
        )

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        book = self._opened.book
        tool = _ANSWERS.get(call.tool.removeprefix(self._config.prefix))
        if tool is None:
            raise BackendError(f"the skills have no tool {short_name(call.tool)}")
        return tool(book, call.arguments)

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    @property
    def features(self) -> frozenset[Feature]:
        """A document has skills in words of its own, a folder those of the protocol."""
        return FOLDER if self._path.is_dir() else DOCUMENT

    def listed_skills(self) -> Sequence[ListedSkill]:
        return self._opened.book.listed

    # ── prompts and resources ────────────────────────────────────────────────────────────────────────────────────────

    def prompts(self) -> Sequence[Prompt]:
        return [
            Prompt(
                name=self._config.prefix + skill.name,
                description=skill.description or _first_line(skill.body) or UNSET,
                arguments=[
                    PromptArgument(name=each.name, description=each.type, required=each.required)
                    for each in {each.name: each for each in skill.inputs}.values()
                ]
                or UNSET,
            )
            for skill in self._opened.book.skills
        ]

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        skill = self._opened.book.get(get.prompt.removeprefix(self._config.prefix))
        if skill is None:
            raise BackendError(f"unknown skill: {short_name(get.prompt)}")
        text = as_prompt(skill, get.arguments)
        return PromptResult((PromptMessage(role="user", content=TextContent(text=text)),))

    def resources(self) -> Sequence[Resource]:
        return [
            Resource(
                uri=page.uri,
                name=page.name,
                title=page.title or UNSET,
                description=page.description or UNSET,
                mime_type=page.media_type,
                size=page.size,
            )
            for page in self._opened.book.pages
        ]

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return ()

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        page = next((page for page in self._opened.book.pages if page.uri == read.uri), None)
        if page is None:
            raise NoSuchResource
        if page.data is not None:
            blob = b64encode(page.data).decode("ascii")
            return [ResourceContents(uri=page.uri, mime_type=page.media_type, blob=blob)]
        return [ResourceContents(uri=page.uri, mime_type=page.media_type, text=page.text or "")]

    def completes(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    async def complete(self, asked: Completing) -> CompletionResult:
        return CompletionResult(())


def _list(book: SkillBook, arguments: Mapping[str, Any]) -> ToolResult:
    written = msgspec.json.format(msgspec.json.encode(book.catalogue()), indent=_INDENTED)
    return text_result(written.decode())


def _route(book: SkillBook, arguments: Mapping[str, Any]) -> ToolResult:
    return text_result("\n".join(map(str, book.route(arguments["text"]))) or "no skill matched")


def _get(book: SkillBook, arguments: Mapping[str, Any]) -> ToolResult:
    skill = book.get(arguments["name"])
    return _unknown(arguments["name"]) if skill is None else text_result(skill.body)


def _resolve(book: SkillBook, arguments: Mapping[str, Any]) -> ToolResult:
    chain = book.resolve(arguments["name"])
    return text_result(as_chain(chain)) if chain else _unknown(arguments["name"])


_ANSWERS: Final[Mapping[str, Callable[[SkillBook, Mapping[str, Any]], ToolResult]]] = MappingProxyType(
    {"list_skills": _list, "route_skill": _route, "get_skill": _get, "resolve_skill": _resolve}
)


def _unknown(name: str) -> ToolResult:
    return failed_result(f"unknown skill: {name[:200]}")


def _first_line(body: str) -> str:
    """Return the first line of text that is no heading: what the skill is for."""
    lines = (line.strip() for line in body.splitlines())
    return next((line[:300] for line in lines if line and not line.startswith("#")), "")
