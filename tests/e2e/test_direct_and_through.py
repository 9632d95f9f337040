"""Six servers of others, asked directly and by way of ours: the answers are the same, but for the differences that are meant.

Each server is started once for a way to it, and asked by the official TypeScript SDK, in the handshake era and in the stateless one. A
server that has the handshake alone is asked directly in that, whatever the era of those who come through. `PEERS_COMPARED=memory-stdio,…`
asks only these; `pytest -s` shows each difference with its reason.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from programs import NODE_BIN, ROOT, SOURCE, Program, needed, until

from tests.free_ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
HANDSHAKE, STATELESS = "handshake", "stateless"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Meant:
    """A difference that is known, and why it is there. Its texts are patterns; `step` and `path` are as the test prints them."""

    why: str
    step: str
    path: str
    server: str = "*"
    way: str = "*"
    era: str = "*"


# So on purpose, or another's doing.
MEANT: Sequence[Meant] = (
    # What a server says of itself.
    Meant(step="begin", path="instructions", server="everything", why="Blanks at the ends of instructions are taken off."),
    Meant(step="begin", path="capabilities.extensions", server="everything", era=STATELESS, why="Tasks are an extension in this era."),
    Meant(step="begin", path="capabilities.tasks", server="everything", era=STATELESS, why="Tasks are an extension in this era."),
    Meant(step="begin", path="capabilities.resources*", server="filesystem", why="Each server has resources of ours (ostiary://me)."),
    Meant(step="begin", path="capabilities.extensions", server="fastmcp", era=HANDSHAKE, why="It tells of MCP Apps in the other era alone, and so is asked there."),
    Meant(step="begin", path="capabilities.*.listChanged", server="fastmcp", era=STATELESS, why="Lists that it tells no changes of are read again now and then."),
    Meant(step="begin", path="capabilities.*.listChanged", server="python-sdk", era=HANDSHAKE, why="It tells changes in the other era, and we are told of them."),
    Meant(step="begin", path="capabilities.resources.subscribe", server="python-sdk", era=HANDSHAKE, why="It tells changes in the other era, and we are told of them."),
    # Lists.
    Meant(step="resources*", path="result.resources.me", why="Each server has resources of ours."),
    Meant(step="resources*", path="result.resources.usage", why="Each server has resources of ours."),
    Meant(step="resources", path="*", server="filesystem", why="Each server has resources of ours."),
    Meant(step="templates", path="*", server="filesystem", why="Who has resources has the list of templates."),
    Meant(step="prompts", path="*", server="filesystem", why="To a client of the handshake era each list is answered; in the other the words are ours."),
    Meant(step="prompts", path="*", server="memory", why="To a client of the handshake era each list is answered; in the other the words are ours."),
    Meant(step="tools*", path="result.tools.name?with?slash", why="It is offered under a name that hosts take, and its own is the title."),
    Meant(step="tools", path="result.tools.simulate-research-query.execution*", why="A tool that is always a task is called as none by clients of old revisions here, which wait for it."),
    # Who asks, and what.
    Meant(step="*", path="asked.*.params.message", why="Whoever is asked is told who asks."),
    Meant(step="*", path="asked.*.params.systemPrompt", why="Whoever is asked is told who asks."),
    Meant(step="call *", path="asked.0.params.elicitationId", why="The id is ours; the stateless era has none."),
    Meant(step="call trigger-url-elicitation 1", path="*", why="Pages that are to be opened first are put to the client, and the call is made again."),
    # What is not there.
    Meant(step="call no such tool", path="*", why="What is not offered is not asked for there: the words are ours."),
    Meant(step="no such prompt", path="*", why="What is not offered is not asked for there: the words are ours."),
    Meant(step="unknown method", path="*", why="What is no method here is not asked for there: the words are ours."),
    Meant(step="complete 3", path="error.message", server="everything", why="What is not offered is not asked for there: the words are ours."),
    Meant(step="complete 0", path="error.*", server="fastmcp", why="Who has no completions is not asked for any: the words are ours."),
    Meant(step="setLevel", path="error.*", server="python-sdk", era=HANDSHAKE, why="Who has no log is not asked for one: the words are ours."),
    Meant(step="read *", path="error.code", era=HANDSHAKE, why="A resource that is not there has the code of its revision, -32002."),
    Meant(step="read demo://nothing", path="error.data", why="A resource that is not there is named."),
    Meant(step="read unlisted://x", path="error.data", server="python-sdk", why="With the codes of JSON-RPC itself only the words go on."),
    Meant(step="call *", path="error.code", server="python-sdk", era=STATELESS, why="An error with a code of JSON-RPC itself is an error of this server to its clients."),
    # What changes.
    Meant(step="*watch", path="*", server="python-sdk", era=HANDSHAKE, why="It tells changes in the other era, and we are told of them."),
    Meant(step="touch", path="told.notifications/resources/updated", server="python-sdk", way="http", era=HANDSHAKE, why="It tells changes in the other era, and we are told of them."),
    Meant(step="*touch", path="told.notifications/tools/list_changed", server="python-sdk", way="stdio", why="The process that serves no caller has not changed, and what it has is offered."),
    Meant(step="tools after", path="result.tools.new", server="python-sdk", way="stdio", why="The process that serves no caller has not changed, and what it has is offered."),
    # Tasks.
    Meant(step="task *", path="result*.ttl", era=HANDSHAKE, why="The task is one of ours, which lives as long as was asked for."),
    Meant(step="task *", path="result*.statusMessage", era=HANDSHAKE, why="How it stands is what was heard when it was looked at last."),
    Meant(step="task cancel", path="error.message", era=HANDSHAKE, why="The task is one of ours: the words are ours."),
    Meant(step="task result", path="*_meta", era=STATELESS, why="What is related to a task is told so in the other era."),
    # Faults of others.
    Meant(step="touch", path="told*", server="go-sdk", way="stdio", why="Go SDK 1.8.0 tells nothing any more when one of two subscriptions on a pipe ends."),
    Meant(step="tools after", path="*", server="go-sdk", way="stdio", why="Go SDK 1.8.0 tells nothing any more when one of two subscriptions on a pipe ends."),
    Meant(step="untouch", path="told*", server="go-sdk", way="stdio", why="Go SDK 1.8.0 tells nothing any more when one of two subscriptions on a pipe ends."),
)  # fmt: skip

# Faults of ours that are known.
TO_BE_MENDED: Sequence[Meant] = (
    # What a server asks, logs or tells outside of any call, on the stream of a session over HTTP.
    Meant(step="log on", path="told*", server="everything", way="http", era=STATELESS, why="What is logged on the stream of a caller's session is not heard."),
)  # fmt: skip
KNOWN: Sequence[Meant] = (*MEANT, *TO_BE_MENDED)


@dataclass(frozen=True, kw_only=True)
class Difference:
    server: str
    way: str
    era: str
    step: str
    path: str
    direct: Any
    through: Any

    def is_of(self, meant: Meant) -> bool:
        names = ("server", "way", "era", "step", "path")
        return all(fnmatchcase(getattr(self, name), getattr(meant, name)) for name in names)


def told(differences: Iterable[Difference]) -> str:
    """Lines for people: those that are alike are one."""
    where: dict[str, list[str]] = {}
    for each in differences:
        shown = (json.dumps(value, ensure_ascii=False)[:200] for value in (each.direct, each.through))
        said = f"{each.step} | {each.path}: {'  →  '.join(shown)}"
        where.setdefault(said, []).append(f"{each.server}-{each.way}-{each.era}")
    return "\n".join(f"{said}  [{' '.join(places)}]" for said, places in where.items())


NOTHING = "(nothing)"


# The servers.


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A server of others, and how it is asked."""

    name: str
    stdio: Callable[[Path], Sequence[str]]  # its command, with a folder of its own
    http: Callable[[Path], Sequence[str]] | None = None
    eras: Mapping[str, Sequence[str]]  # of each way to it
    calls: Mapping[str, Sequence[Json]] = field(default_factory=dict[str, Sequence[Json]])
    uris: Sequence[str] = ()  # what is read, besides what is listed
    prompts: Mapping[str, Sequence[Json]] = field(default_factory=dict[str, Sequence[Json]])
    completions: Sequence[Json] = ()
    more: Callable[[Asker], None] = lambda _asker: None


def npm(name: str, *arguments: str) -> list[str]:
    script = PEERS / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    return [str(NODE_BIN / "node"), str(needed(script, "scripts/peers node")), *arguments]


def python(environment: str, script: str, *arguments: str) -> list[str]:
    program = needed(ROOT / ".venvs" / environment / "bin" / "python", "scripts/peers python")
    return [str(program), str(PEERS / script), *arguments]


def menu(*arguments: str) -> list[str]:
    return [str(needed(ROOT / ".work" / "peers" / "gosdk" / "menu", "scripts/peers gosdk")), *arguments]


def notes(folder: Path) -> Path:
    """A folder with two files, made anew; it stays the same folder to who has it open."""
    place = folder / "notes"
    place.mkdir(exist_ok=True)
    for each in (place / "made", place / "deep"):
        shutil.rmtree(each, ignore_errors=True)
    (place / "milk.txt").write_text("two bottles\nof milk\n", "utf-8")
    (place / "cheese.txt").write_text("a pound\n", "utf-8")
    (place / "deep").mkdir(exist_ok=True)
    return place


# The steps that a server has for itself.


def of_everything(asker: Asker) -> None:
    if asker.era == HANDSHAKE:
        asker.ask("setLevel", "logging/setLevel", level="debug")
    level = {LOG_LEVEL: "debug"}
    heard = {"notifications/message": 1}
    asker.call("log on", "toggle-simulated-logging", hears=heard, _meta=level)
    asker.call("log off", "toggle-simulated-logging")
    uri = "demo://resource/dynamic/text/1"
    asker.watch(uri)
    asker.call("news on", "toggle-subscriber-updates", hears={"notifications/resources/updated": 1})
    asker.call("news off", "toggle-subscriber-updates")
    asker.unwatch(uri)
    link = asker.call("a file", "gzip-file-as-resource", name="x.gz", data="data:text/plain,x")
    asker.ask("read the file", "resources/read", uri=link["result"]["content"][0]["uri"])
    asker.ask("resources after", "resources/list")
    asker.task("task", "simulate-research-query", topic="python", ambiguous=True)


def of_menu(asker: Asker) -> None:
    if asker.era == HANDSHAKE:
        asker.ask("setLevel", "logging/setLevel", level="info")
    asker.call("logs", "steps", hears={"notifications/message": 1}, _meta={LOG_LEVEL: "info"})
    asker.call("give up", "wait", stops="notifications/progress")
    asker.call("given up", "was_stopped")
    link = asker.call("a link", "link")
    asker.ask("follow the link", "resources/read", uri=link["result"]["content"][0]["uri"])
    if "keep" in asker.tools:
        asker.call("keep", "keep", word="mine")
        asker.call("show", "show")
    if "touch" in asker.tools:
        asker.watch("menu://text")
        heard = {"notifications/tools/list_changed": 1}
        if asker.watching:
            heard["notifications/resources/updated"] = 1
        asker.call("touch", "touch", hears=heard)
        asker.ask("tools after", "tools/list")
        asker.call("untouch", "untouch", hears={"notifications/tools/list_changed": 1})
        asker.unwatch("menu://text")


SEPARATELY = ("toggle-simulated-logging", "toggle-subscriber-updates", "gzip-file-as-resource", "simulate-research-query", "wait", "was_stopped", "touch", "untouch", "keep", "show", "link", "new")  # fmt: skip
NOTES = "{folder}/notes"
ONE_ERA = {"stdio": (HANDSHAKE,), "http": (HANDSHAKE,)}
BOTH_ERAS = {"stdio": (HANDSHAKE, STATELESS), "http": (HANDSHAKE, STATELESS)}
PEERS_OF_OTHERS: Sequence[Peer] = (
    Peer(
        name="everything",
        stdio=lambda _: npm("everything", "stdio"),
        http=lambda _: npm("everything", "streamableHttp"),
        eras=ONE_ERA,
        calls={
            "echo": [{"message": "héllo 🎉"}],
            "get-annotated-message": [{"messageType": "error", "includeImage": True}],
            "get-env": [],
            "get-resource-links": [{"count": 2}],
            "get-resource-reference": [{"resourceType": "Text", "resourceId": 3}],
            "get-structured-content": [{"location": "Chicago"}],
            "get-sum": [{"a": 1, "b": 2.5}],
            "get-tiny-image": [{}],
            "trigger-long-running-operation": [{"duration": 0.6, "steps": 3}],
            "get-roots-list": [{}],
            "trigger-elicitation-request": [{}],
            "trigger-url-elicitation": [{"url": "https://a.example/"}, {"url": "https://a.example/2", "errorPath": True}],
            "trigger-sampling-request": [{"prompt": "Say something.", "maxTokens": 10}],
            "trigger-elicitation-request-async": [{}],
            "trigger-sampling-request-async": [{"prompt": "Say something."}],
        },
        uris=("demo://resource/dynamic/text/7", "demo://resource/dynamic/blob/8", "demo://resource/dynamic/text/none", "demo://nothing"),
        prompts={
            "args-prompt": [{"city": "Ghent", "state": "Flanders"}],
            "completable-prompt": [{"department": "Sales", "name": "David"}],
            "resource-prompt": [{"resourceType": "Text", "resourceId": "2"}],
        },
        completions=(
            {"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": {"name": "department", "value": "S"}},
            {
                "ref": {"type": "ref/prompt", "name": "completable-prompt"},
                "argument": {"name": "name", "value": ""},
                "context": {"arguments": {"department": "Sales"}},
            },
            {"ref": {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "argument": {"name": "resourceId", "value": "3"}},
            {"ref": {"type": "ref/prompt", "name": "no such"}, "argument": {"name": "x", "value": ""}},
        ),
        more=of_everything,
    ),
    Peer(
        name="filesystem",
        stdio=lambda folder: npm("filesystem", str(notes(folder))),
        eras=ONE_ERA,
        calls={
            "read_file": [{"path": f"{NOTES}/milk.txt", "head": 1}],
            "read_text_file": [{"path": f"{NOTES}/milk.txt"}, {"path": "/etc/hostname"}, {"path": f"{NOTES}/none"}],
            "read_media_file": [{"path": f"{NOTES}/milk.txt"}],
            "read_multiple_files": [{"paths": [f"{NOTES}/milk.txt", f"{NOTES}/none"]}],
            "write_file": [{"path": f"{NOTES}/new.txt", "content": "ne\nw"}],
            "edit_file": [{"path": f"{NOTES}/new.txt", "edits": [{"oldText": "ne", "newText": "old"}], "dryRun": True}],
            "create_directory": [{"path": f"{NOTES}/made"}],
            "list_directory": [{"path": NOTES}],
            "list_directory_with_sizes": [{"path": NOTES}],
            "directory_tree": [{"path": NOTES}],
            "move_file": [{"source": f"{NOTES}/new.txt", "destination": f"{NOTES}/made/moved.txt"}],
            "search_files": [{"path": NOTES, "pattern": "**/*.txt"}],
            "get_file_info": [{"path": f"{NOTES}/cheese.txt"}],
            "list_allowed_directories": [{}],
        },
    ),
    Peer(
        name="memory",
        stdio=lambda folder: ["/usr/bin/env", f"MEMORY_FILE_PATH={folder}/memory.json", *npm("memory")],
        eras=ONE_ERA,
        calls={
            "create_entities": [{"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]}],
            "create_relations": [{"relations": [{"from": "Ada", "to": "Ada", "relationType": "knows"}]}],
            "add_observations": [{"observations": [{"entityName": "Ada", "contents": ["writes"]}]}, {"observations": [{"entityName": "Bob", "contents": []}]}],
            "read_graph": [{}],
            "search_nodes": [{"query": "writes"}],
            "open_nodes": [{"names": ["Ada"]}],
            "delete_observations": [{"deletions": [{"entityName": "Ada", "observations": ["writes"]}]}],
            "delete_relations": [{"relations": [{"from": "Ada", "to": "Ada", "relationType": "knows"}]}],
            "delete_entities": [{"entityNames": ["Ada"]}],
        },
    ),
    Peer(
        name="fastmcp",
        stdio=lambda _: python("fastmcp", "fastmcp_menu.py", "stdio"),
        http=lambda _: python("fastmcp", "fastmcp_menu.py", "http"),
        eras=BOTH_ERAS,
        calls={
            "add": [{"a": 1}, {"a": "1", "b": 3}],
            "picture": [{}],
            "whole": [{}],
            "fail": [{"how": "told"}, {"how": "else"}],
            "steps": [{}],
            "ask": [{}],
            "name/with slash": [{}],
        },
        uris=("path://a/b/c.txt", "docs://one/two/three", "unlisted://x", "menu://none"),
        prompts={"greet": [{"name": "Ada"}, {"name": "Ada", "times": "3"}]},
        completions=({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},),
        more=of_menu,
    ),
    Peer(
        name="python-sdk",
        stdio=lambda _: python("peers", "python_sdk_menu.py", "stdio"),
        http=lambda _: python("peers", "python_sdk_menu.py", "http"),
        eras=BOTH_ERAS,
        calls={
            "add": [{"a": 1}, {"a": "1", "b": 3}],
            "picture": [{}],
            "fail": [{}],
            "steps": [{}],
            "ask": [{}],
            "open_page": [{}],
            "sample": [{}],
            "where": [{}],
            "rounds": [{}],
            "name/with slash": [{}],
        },
        uris=("unlisted://x", "menu://none"),
        prompts={"greet": [{"name": "Ada"}, {"name": "Ada", "times": "3"}]},
        completions=({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},),
        more=of_menu,
    ),
    Peer(
        name="go-sdk",
        stdio=lambda _: menu("stdio"),
        http=lambda _: menu("http"),
        # With sessions it has the handshake alone.
        eras={"stdio": (HANDSHAKE, STATELESS), "http": (HANDSHAKE,)},
        calls={"add": [{"a": 1, "b": 2}], "fail": [{}], "steps": [{}], "ask": [{}], "sample": [{}], "where": [{}], "raw": [{"n": 1, "more": [None, "ü"]}]},
        uris=("menu://many/7", "menu://many/0", "menu://none"),
        prompts={"greet": [{"name": "Ada"}]},
        completions=({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},),
        more=of_menu,
    ),
)  # fmt: skip


# Asking.

ASKS_FOR_ROOTS = ("where", "rounds")


class Asker:
    """One client, and what it was answered at each step."""

    def __init__(self, process: subprocess.Popen[str], era: str, folder: str) -> None:
        self.era = era
        self.steps: dict[str, Json] = {}
        self.tools: dict[str, Json] = {}
        self.watching = False
        self._process = process
        self._folder = folder
        self.steps["begin"] = _beginning(self._answer())

    def _answer(self) -> Json:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the client ended with {self._process.wait()}"
        return json.loads(line)

    def ask(
        self, step: str, method: str, *, hears: Json | None = None, stops: str | None = None, **params: Any
    ) -> Json:
        """Ask one thing, and keep the answer under the name of the step."""
        assert self._process.stdin is not None
        assert step not in self.steps, step
        line = json.dumps({"method": method, "params": params, "hears": hears or {}, "stops": stops})
        self._process.stdin.write(line.replace("{folder}", self._folder) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        kept = {"notifications/progress", *(hears or ())}
        told = [each for each in answer["told"] if each["method"] in kept]
        # They may come by different streams, so each kind has an order of its own.
        answer["told"] = {
            each["method"]: [other["params"] for other in told if other["method"] == each["method"]]
            for each in told
        }
        progress = answer["told"].get("notifications/progress", [])
        # That each comes is tried where nothing else runs (test_upstream_mcp_served.py, test_gateway_hostile.py).
        if progress and not stops:
            answer["told"]["notifications/progress"] = progress[-1:]
        if not any(word in step for word in ASKS_FOR_ROOTS):  # some servers ask for them whenever they like
            answer["asked"] = [each for each in answer["asked"] if each["method"] != "roots/list"]
        self.steps[step] = answer
        return answer

    def call(
        self,
        step: str,
        tool: str,
        *,
        hears: Json | None = None,
        stops: str | None = None,
        _meta: Json | None = None,
        **arguments: Any,
    ) -> Json:
        meta = {"progressToken": step, **(_meta or {})}
        return self.ask(
            step, "tools/call", hears=hears, stops=stops, name=tool, arguments=arguments, _meta=meta
        )

    def watch(self, uri: str) -> None:
        """Subscribe, in the way of the era."""
        if self.era == STATELESS:
            wanted = {"toolsListChanged": True, "resourceSubscriptions": [uri]}
            answer = self.ask(
                "watch",
                "subscriptions/listen",
                notifications=wanted,
                hears={"notifications/subscriptions/acknowledged": 1},
            )
            said = answer["told"].get("notifications/subscriptions/acknowledged", [{}])[0]
            self.watching = bool(said.get("notifications", {}).get("resourceSubscriptions"))
        else:
            self.watching = "result" in self.ask("watch", "resources/subscribe", uri=uri)

    def unwatch(self, uri: str) -> None:
        if self.era == HANDSHAKE:
            self.ask("unwatch", "resources/unsubscribe", uri=uri)

    def task(self, step: str, tool: str, **arguments: Any) -> None:
        """Run a tool as a task to its end, with an answer to what it asks."""
        if self.era == HANDSHAKE:
            begun = self.ask(
                f"{step} begun", "tools/call", name=tool, arguments=arguments, task={"ttl": 60_000}
            )
            name = begun.get("result", {}).get("task", {}).get("taskId", "")
            self.ask(f"{step} state", "tasks/get", taskId=name)
            self.ask(f"{step} result", "tasks/result", taskId=name)
            self.ask(f"{step} list", "tasks/list")
            self.ask(f"{step} cancel", "tasks/cancel", taskId=name)
            return
        begun = self.ask(f"{step} begun", "tools/call", name=tool, arguments=arguments)
        looks = 0
        asked: list[Json] = []

        def state() -> Json | None:
            nonlocal looks
            looks += 1
            found = self.ask(f"look {looks}", "tasks/get", taskId=begun["result"].get("taskId", ""))
            del self.steps[f"look {looks}"]
            result = found.get("result", found)
            for key, question in (result.get("inputRequests") or {}).items():
                asked.append(question)
                given = {key: {"action": "accept", "content": {"interpretation": "programming"}}}
                self.ask(
                    f"input {looks}", "tasks/update", taskId=begun["result"]["taskId"], inputResponses=given
                )
                del self.steps[f"input {looks}"]
            return found if result.get("status") in (None, "completed", "failed", "cancelled") else None

        found = until("the end of a task", state)
        result = found.get("result", {}).get("result", found)
        self.steps[f"{step} result"] = {"result": result, "asked": asked, "told": {}}


def _beginning(answer: Json) -> Json:
    """What a server says of itself, in either era."""
    result = answer["result"]
    info = result.get("serverInfo") or result.get("_meta", {}).get(SERVER_INFO)
    return {
        "serverInfo": info,
        "capabilities": result["capabilities"],
        "instructions": result.get("instructions"),
    }


def wrong_arguments(schema: Json, sensible: Json) -> Iterator[Json]:
    """Arguments that a schema does not take: none where some are required, numbers as texts, and of the wrong type."""
    properties = schema.get("properties", {})
    if schema.get("required"):
        yield {}
    numbers = [name for name, each in properties.items() if each.get("type") in ("integer", "number")]
    if numbers:
        yield {**sensible, numbers[0]: "3"}
    if properties:
        name, first = next(iter(properties.items()))
        yield {**sensible, name: 7 if first.get("type") == "array" else []}


def everything_asked(peer: Peer, asker: Asker) -> dict[str, Json]:
    tools = asker.ask("tools", "tools/list")
    asker.tools = {each["name"]: each for each in tools["result"]["tools"]}
    listed = {name: asker.ask(name, f"{method}/list") for name, method in (("resources", "resources"), ("templates", "resources/templates"), ("prompts", "prompts"))}  # fmt: skip
    for name, tool in asker.tools.items():
        if name in SEPARATELY:
            continue
        original = next((each for each in peer.calls if legal(each) == legal(name)), name)
        for number, arguments in enumerate(peer.calls[original]):
            asker.call(f"call {original} {number}", name, **arguments)
        for number, arguments in enumerate(
            wrong_arguments(tool["inputSchema"], (*peer.calls[original], {})[0])
        ):
            asker.call(f"wrong {original} {number}", name, **arguments)
    asker.call("call no such tool", "no such tool")
    uris = [each["uri"] for each in listed["resources"].get("result", {}).get("resources", ())]
    for uri in (*uris, *peer.uris):
        if not uri.startswith("ostiary://"):
            asker.ask(f"read {uri}", "resources/read", uri=uri)
    for prompt in listed["prompts"].get("result", {}).get("prompts", ()):
        name = prompt["name"]
        for number, given in enumerate((*peer.prompts.get(name, ()), {})):
            asker.ask(f"prompt {name} {number}", "prompts/get", name=name, arguments=given)
    asker.ask("no such prompt", "prompts/get", name="no such prompt")
    for number, given in enumerate(peer.completions):
        asker.ask(f"complete {number}", "completion/complete", **given)
    asker.ask("unknown method", "no/such/method")
    peer.more(asker)
    return asker.steps


def legal(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def asked_by(era: str, peer: Peer, folder: Path, *target: str, token: str = "") -> dict[str, Json]:
    generation = {HANDSHAKE: "v1", STATELESS: "v2"}[era]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "NODE_NO_WARNINGS": "1",
        "MCP_TOKEN": token,
    }
    command = [str(NODE_BIN / "node"), str(PEERS / "ts_compared.mjs"), generation, *target]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:  # fmt: skip
        try:
            return everything_asked(peer, Asker(process, era, str(folder)))
        finally:
            process.communicate()


# Comparing.

# What is answered otherwise in the other era, and means the same.
OF_ONE_ERA = ("watch", "task begun")

VOLATILE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\btask_[\w-]+|\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"\w{3} \w{3} \d\d \d{4} \d\d:\d\d:\d\d GMT[+-]\d{4} \([^)]*\)|\d?\d:\d\d:\d\d\s?[AP]M"), "<time>"),
    (re.compile(r"\w+[- ]level[- ]message( - SessionId \S+)?"), "<a message>"),
    (re.compile(r"(updates|notifications) for session \S+"), "<session>"),
)  # fmt: skip
# Of the envelope of either era, or of each request alone.
LEFT_OUT = {
    "resultType",
    "ttlMs",
    "cacheScope",
    "progressToken",
    "requestState",
    SERVER_INFO,
    "io.modelcontextprotocol/subscriptionId",
}

# Members that say what their absence says.
SAYS_NOTHING = (
    ("_meta", {}),
    ("params", {}),
    ("isError", False),
    ("execution", {"taskSupport": "forbidden"}),
    ("listChanged", False),
    ("subscribe", False),
)


def plain(value: Any, folder: str) -> Any:
    """The same without what is another each time."""
    match value:
        case dict():
            found = {key: plain(each, folder) for key, each in value.items() if key not in LEFT_OUT}
            if found.get("data") == "<a message>":  # of a random level
                del found["level"]
            if isinstance(found.get("blob"), str):
                found["blob"] = plain(
                    base64.b64decode(found["blob"]).decode("utf-8", "backslashreplace"), folder
                )
            for key, nothing in SAYS_NOTHING:
                if found.get(key) == nothing and key in found:
                    del found[key]
            return found
        case list():
            return [plain(each, folder) for each in value]
        case str():
            value = value.replace(folder, "<folder>")
            for pattern, name in VOLATILE:
                value = pattern.sub(name, value)
            return value
        case _:
            return value


def differing(direct: Any, through: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each place at which two values differ."""
    if isinstance(direct, list) and isinstance(through, list):
        direct, through = _by_name(direct), _by_name(through)
    if isinstance(direct, dict) and isinstance(through, dict):
        for key in sorted({*direct, *through}, key=str):
            below = f"{path}.{key}" if path else str(key)
            yield from differing(direct.get(key, NOTHING), through.get(key, NOTHING), below)
    elif direct != through:
        yield path, direct, through


def _by_name(values: list[Any]) -> dict[Any, Any]:
    for key in ("name", "uri", "uriTemplate"):
        if values and all(isinstance(each, dict) and key in each and "type" not in each for each in values):
            return {each[key]: each for each in values}
    return dict(enumerate(values))


def compared(
    peer: Peer,
    way: str,
    era: str,
    direct: Mapping[str, Json],
    through: Mapping[str, Json],
    folders: tuple[Path, Path],
) -> Iterator[Difference]:
    steps = [*direct, *(each for each in through if each not in direct)]
    if era not in peer.eras[way]:
        steps = [each for each in direct if each in through and each not in OF_ONE_ERA]
    for step in steps:
        one, other = (
            plain(each.get(step, NOTHING), str(folder))
            for each, folder in ((direct, folders[0]), (through, folders[1]))
        )
        for path, there, here in differing(one, other):
            yield Difference(
                server=peer.name, way=way, era=era, step=step, path=path, direct=there, through=here
            )


# The test.

WAYS = [(peer, way) for peer in PEERS_OF_OTHERS for way in ("stdio", "http") if way == "stdio" or peer.http]

WANTED = os.environ.get("PEERS_COMPARED", "")


@dataclass(kw_only=True)
class Place:
    """One server and the way to it, as it is asked directly and as it is behind ours."""

    peer: Peer
    way: str
    own: Path  # folders
    behind: Path
    own_url: str = ""
    url: str = ""

    @property
    def name(self) -> str:
        return f"{self.peer.name}-{self.way}"

    @property
    def target(self) -> Sequence[str]:
        return [self.own_url] if self.way == "http" else ["--", *self.peer.stdio(self.own)]


def settings(places: Sequence[Place]) -> str:
    return "\n".join(
        f"""
[[server]]
name = "{place.name}"
path = "/{place.name}/mcp"
[[server.tokens]]
name = "ada"
token = "file:ada"
[[server.agent]]
kind = "mcp"
trust = "always"
questions = ["elicitation", "sampling", "roots"]
question_hosts = ["a.example", "menu.example", "modelcontextprotocol.io"]
{f'url = "{place.url}"' if place.way == "http" else f"command = {json.dumps(place.peer.stdio(place.behind))}"}
"""
        for place in places
    )


@contextmanager
def listening(program: Program, command: Sequence[str]) -> Generator[str]:
    port = free_port()
    with program.starting(command=["/usr/bin/env", f"PORT={port}", *command]) as background:
        found = background.await_words(r"(?i)listening on (?:port|(http\S+))")
        yield found[1] or f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(scope="module")
def differences(shared_home: Path) -> Iterator[Sequence[Difference]]:
    program = Program(command=SOURCE, home=shared_home)
    secret = "a" * 40
    (shared_home / "ada").write_text(secret, "utf-8")
    (shared_home / "ada").chmod(0o600)
    places: list[Place] = []
    with ExitStack() as stack:
        for number, (peer, way) in enumerate(WAYS):
            if WANTED and f"{peer.name}-{way}" not in WANTED.split(","):
                continue
            own, behind = (shared_home / f"{kind}{number}" for kind in ("own", "behind"))
            own.mkdir()
            behind.mkdir()
            place = Place(peer=peer, way=way, own=own, behind=behind)
            if way == "http":
                assert peer.http is not None
                place.own_url, place.url = (
                    stack.enter_context(listening(program, peer.http(folder))) for folder in (own, behind)
                )
            places.append(place)
        (shared_home / "ostiary.toml").write_text(settings(places), "utf-8")
        server = stack.enter_context(program.serving())

        def all_of(place: Place) -> list[Difference]:
            found: list[Difference] = []
            notes(place.own)
            direct = {
                era: asked_by(era, place.peer, place.own, *place.target) for era in place.peer.eras[place.way]
            }
            for era in (HANDSHAKE, STATELESS):
                notes(place.behind)
                endpoint = f"{server.url}/{place.name}/mcp"
                through = asked_by(era, place.peer, place.behind, endpoint, token=secret)
                best = direct[era if era in direct else HANDSHAKE]
                found += compared(place.peer, place.way, era, best, through, (place.own, place.behind))
            return found

        with ThreadPoolExecutor(4) as pool:
            yield [each for found in pool.map(all_of, places) for each in found]


def test_answers_are_the_same_but_for_differences_that_are_meant(differences: Sequence[Difference]) -> None:
    left = [each for each in differences if not any(each.is_of(meant) for meant in KNOWN)]
    for each in KNOWN:
        print(f"\n{each.why}\n{told(one for one in differences if one.is_of(each))}")
    assert not left, told(left)


@pytest.mark.skipif(bool(WANTED), reason="only some servers are asked")
def test_each_difference_that_is_known_is_there(differences: Sequence[Difference]) -> None:
    assert [meant for meant in KNOWN if not any(each.is_of(meant) for each in differences)] == []
