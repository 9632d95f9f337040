"""What the documents show to be typed, written or read, by the kind of its block: commands are taken by the command table, programs compile, JSON
is JSON, messages are in the source, and every page says for whom it is. Settings are looked at in test_docs.py."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from auth.values.scopes import Vocabulary
from server.cli import COMMANDS
from tests.test_docs import DOCUMENTS, ROOT, named, text_of

PAGES = [page for page in DOCUMENTS if page.parent != ROOT]
# What a block is in. A name that is not here is a slip, and nothing would look at the block.
LANGUAGES = {
    "3md",
    "caddyfile",
    "console",
    "html",
    "ini",
    "json",
    "md",
    "nginx",
    "python",
    "sh",
    "text",
    "toml",
    "yaml",
}
# Programs of others, in the pages for those who come from there.
FOREIGN = {"js", "kotlin", "ts"}


class Fenced(NamedTuple):
    page: str
    number: int
    language: str
    text: str


@cache
def fenced() -> tuple[Fenced, ...]:
    return tuple(
        Fenced(named(page), number, language, text)
        for page in DOCUMENTS
        for number, (language, text) in enumerate(
            re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE), 1
        )
    )


def of(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{block.page}-{block.number}")
        for block in fenced()
        if block.language == language
    ]


def test_every_block_says_what_it_is() -> None:
    assert {
        (each.page, each.number, each.language)
        for each in fenced()
        if each.language not in LANGUAGES | FOREIGN
    } == set()


def typed(block: Fenced) -> Iterator[list[str]]:
    """Each command line of the block that is for this program, from the name of the command on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":  # what was typed, and below it what came
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if not set(word) <= set("();<>|&"):
                words.append(word)
                continue
            yield from ours(words)
            words = []


def ours(words: list[str]) -> Iterator[list[str]]:
    if words[:2] == ["docker", "exec"]:
        # Without a terminal, a command that shows a secret refuses to.
        assert words[2] == "-it", words
        words = words[4:]
    if words[:1] == ["sudo"]:
        words = words[1:]
    if words[:1] == ["scripts/serve"]:
        yield ["serve", *words[1:]]
    elif words and words[0].rpartition("/")[2] == "ostiary":
        yield words[1:]


def take(command: click.Command, words: Sequence[str], parent: click.Context) -> None:
    """As `command` would, up to what it is to do. Raises click's `UsageError`."""
    with click.Context(command, info_name=command.name, parent=parent) as context:
        command.parse_args(context, list(words))
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            _, inner, beyond = command.resolve_command(context, rest)
            assert inner is not None
            take(inner, beyond, context)


@pytest.mark.parametrize("block", [*of("sh"), *of("console")])
def test_every_command_that_a_document_types_is_taken(block: Fenced) -> None:
    root = click.Context(click.Command("ostiary"), help_option_names=["-h", "--help"])
    for words in typed(block):
        assert words, block
        name, *rest = words
        if name.startswith("-"):
            continue  # --version and the like are of the program itself
        assert name in COMMANDS, f"{block.page}: ostiary {name}"
        try:
            take(import_module(COMMANDS[name].module).command, rest, root)
        except click.UsageError as error:
            pytest.fail(f"{block.page}: ostiary {shlex.join(words)}: {error.format_message()}")


def test_the_reader_of_blocks_finds_what_is_typed() -> None:
    shown = (
        "sudo ostiary service install -- agent.py  # for all\n"
        "docker exec -it ostiary ostiary claim && ostiary \\\n  status --json | jq .ready\n"
        "echo ostiary is here; scripts/serve --port 8421\n"
    )
    assert list(typed(Fenced("", 1, "console", "$ ostiary status\nlistens  ostiary here\n"))) == [["status"]]
    assert list(typed(Fenced("", 1, "sh", shown))) == [
        ["service", "install", "--", "agent.py"],
        ["claim"],
        ["status", "--json"],
        ["serve", "--port", "8421"],
    ]


def test_a_command_with_an_option_that_it_does_not_have_is_seen() -> None:
    root = click.Context(click.Command("ostiary"), help_option_names=["-h", "--help"])
    for words in (["login", "--banana", "URL"], ["users", "ennoble", "bob"], ["invite"]):
        with pytest.raises(click.UsageError):
            take(import_module(COMMANDS[words[0]].module).command, words[1:], root)


@pytest.mark.parametrize("block", of("python"))
def test_every_program_that_a_document_shows_compiles(block: Fenced) -> None:
    compile(block.text, f"{block.page}, block {block.number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", of("json"))
def test_every_json_that_a_document_shows_is_json(block: Fenced) -> None:
    json.loads(block.text)


def test_the_agent_of_the_recording_is_the_one_that_the_readme_shows() -> None:
    shown = next(block.text for block in fenced() if (block.page, block.language) == ("README.md", "python"))
    assert text_of("scripts/record.d/restaurant.py") == shown


# Commands that need neither a server nor anything that was made before.
ALONE = ("version", "help", "upgrade")


def test_what_needs_nothing_else_runs_as_it_is_shown(tmp_path: Path) -> None:
    lines = {tuple(words) for block in fenced() if block.language == "sh" for words in typed(block) if words}
    alone = sorted(words for words in lines if words[0] in ALONE and "--check" not in words)
    assert {words[0] for words in alone} == set(ALONE)
    for words in alone:
        ran = subprocess.run(
            (sys.executable, "-P", "-m", "server", *words), capture_output=True, check=False,
            env={"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, cwd=tmp_path, timeout=60,
        )  # fmt: skip
        assert ran.returncode == 0, f"ostiary {' '.join(words)}: {ran.stderr.decode()}"
        assert ran.stdout


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_page_opens_with_what_it_is_for_and_for_whom(page: Path) -> None:
    """A title, and a paragraph that says it before anything else does."""
    title, opening = page.read_text("utf-8").split("\n\n")[:2]
    assert re.fullmatch(r"# \S[^\n]*", title)
    assert re.search(r"\bFor (anyone|authors|developers|operators|owners|people)\b", opening), opening


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_scopes_that_a_document_names_exist(document: Path) -> None:
    ours = set(Vocabulary().names)
    text = re.sub(r"https?://\S+", "", document.read_text("utf-8"))
    assert set(re.findall(r"(?<![\w:./])mcp(?::[a-z]+)+", text)) - ours == set()


@cache
def messages() -> tuple[str, ...]:
    """Every text that the source has, with … where something is put in."""
    found: list[str] = []
    for top in ("auth", "server"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    pieces = (each.value if isinstance(each, ast.Constant) else "…" for each in node.values)
                    found.append("".join(map(str, pieces)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
        found += (path.read_text("utf-8") for path in (ROOT / top).rglob("*.html"))
    return tuple(found)


def said(message: str) -> bool:
    wanted = re.compile(r".*".join(map(re.escape, filter(None, message.split("…")))), re.DOTALL)
    return any(wanted.search(text) for text in messages())


QUOTED = re.findall(r"^\| `([^`]+)` \|", text_of("docs/troubleshooting.md"), re.MULTILINE)


@pytest.mark.parametrize("message", QUOTED)
def test_every_message_that_is_explained_is_one_that_is_said(message: str) -> None:
    assert said(message)


def test_messages_are_explained_and_one_that_nobody_says_is_seen() -> None:
    assert len(QUOTED) > 40
    assert not said("no server is running on … Sundays")


def counted() -> set[str]:
    """The name of every metric, from where it is counted: the calls that make one, and what every exposition has."""
    # What every exposition has, and what the parent of several processes counts.
    made = text_of("server/lib/log/prometheus_text.py") + text_of("server/run/app_workers.py")
    found = set(re.findall(r'\bfamily\(\s*"(\w+)"', made))
    suffix = {"gauge": "", "gauges": "", "counter": "_total", "counters": "_total"}
    for path in [*(ROOT / "server/run").glob("*.py"), ROOT / "server/telemetry/telemetry_start.py"]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in suffix
            ):
                first = node.args[0]
                names = (
                    [str(first.value)]
                    if isinstance(first, ast.Constant)
                    else [f"connections_{name}" for name in import_module("server.run.app").CONNECTION_COUNTS]
                )
                found |= {f"ostiary_{name}{suffix[node.func.attr]}" for name in names}
    return found


def test_every_metric_is_explained_and_no_other() -> None:
    assert set(re.findall(r"^\| `(\w+)", text_of("docs/metrics.md"), re.MULTILINE)) == counted()
