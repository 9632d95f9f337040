"""`ostiary skills`: make, check and query an agent that is a document, by the same routing and reading that a server offers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from server.cli import terminal
from server.cli.terminal import clean, json_option, out, paint

if TYPE_CHECKING:
    from server.agents.skills.skill_faults import SkillFault
    from server.agents.skills.skills_book import Skill, SkillBook
    from server.agents.skills.skills_source import OpenedSkills

USUAL_FILE: Final = "agent.3md"
SUFFIX: Final = ".3md"
# As shells say it: a command that is not there, and one that a signal ended.
EXIT_NOT_FOUND: Final = 127
EXIT_SIGNAL: Final = 128


@click.group(
    help="Make, check and query skills: a .3md document, or a folder of SKILL.md files. FILE is ./agent.3md unless it is named."
)
def command() -> None: ...


@command.command("new", help="Write a document for an agent called NAME, to begin with.")
@click.argument("name")
@click.argument("outfile", required=False)
def new(name: str, outfile: str | None) -> None:
    from server.agents.skills.skills_source import new_document

    if not name.strip() or not name.isprintable():
        raise terminal.Misuse("the name of an agent is a line of text")
    usual, text = new_document(name.strip())
    path = Path(outfile or usual)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise terminal.CliError(f"{path} is there already, and is not overwritten") from None
    out(f"wrote {clean(str(path))}")
    terminal.say_hint(f"ostiary skills check {quote(str(path))}")
    terminal.say_hint(f"ostiary serve {quote(str(path))}")


@command.command("list", help="List the skills, without their instructions.")
@click.argument("file", required=False)
@json_option
def list_skills(file: str | None, as_json: bool) -> None:
    book = _open(file or USUAL_FILE).book
    if as_json:
        terminal.out_json(book.export())
        return
    model = f"  ({clean(book.model)})" if book.model else ""
    out(f"{paint(clean(book.name), 'bold', sys.stdout)}{model}")
    if book.persona:
        for line in terminal.wrapped(clean(book.persona), sys.stdout, left=2):
            out(f"  {line}")
    costs = any(skill.cost for skill in book.skills)
    rows = [
        (
            f"  {paint(clean(skill.name), 'bold', sys.stdout)}",
            *([clean(skill.cost or "")] if costs else []),
            clean(", ".join(skill.triggers)) or "(no triggers)",
            clean(skill.tool or ""),
        )
        for skill in book.skills
    ]
    for line in terminal.columns(rows):
        out(terminal.cut(line, terminal.width(sys.stdout)))


@command.command("route", help="Which skills fit a request? The best first.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] TEXT …")
@json_option
def route(words: tuple[str, ...], as_json: bool) -> None:
    file, rest = _split(words)
    text = _request(rest)
    book = _open(file).book
    found = book.route(text)
    if as_json:
        terminal.out_json(
            [
                {"name": each.skill.name, "score": len(each.matched), "matched": list(each.matched)}
                for each in found
            ]
        )
        return
    if not found:
        out("no skill matched")
        return
    for each in found:
        out(clean(str(each)))
    _tell_chain(book, found[0].skill)


@command.command("get", help="Print the instructions of one skill.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] SKILL")
def get(words: tuple[str, ...]) -> None:
    file, rest = _split(words)
    out(clean(_named(_open(file).book, rest).body, keep_lines=True))


@command.command("resolve", help="Print a skill together with all that it depends on.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] SKILL")
def resolve(words: tuple[str, ...]) -> None:
    from server.agents.skills.skills_book import as_chain

    file, rest = _split(words)
    book = _open(file).book
    out(clean(as_chain(book.resolve(_named(book, rest).name)), keep_lines=True))


@command.command(
    "check", help="Say what is wrong with it: exit 0 for nothing, 1 for errors, 2 if it cannot be read."
)
@click.argument("file", required=False)
@json_option
def check(file: str | None, as_json: bool) -> int:
    faults = _faults(Path(file or USUAL_FILE))
    errors = [fault for fault in faults if fault.level == "error"]
    if as_json:
        import msgspec

        terminal.out_json({"ok": not errors, "faults": msgspec.to_builtins(faults)})
        return terminal.EXIT_FAILED if errors else 0
    for fault in faults:
        style = "red" if fault.level == "error" else "yellow"
        out(f"{paint(fault.level, style, sys.stdout)} {clean(str(fault))}")
    warnings = len(faults) - len(errors)
    out(f"{'failed' if errors else 'passed'}: {_count(len(errors), 'error')}, {_count(warnings, 'warning')}")
    return terminal.EXIT_FAILED if errors else 0


@command.command(
    "run",
    help="Find the skill for a request, and print its command with the values in it. --exec runs it, without a shell.",
)
@click.argument("words", nargs=-1, required=True, metavar="[FILE] TEXT … [KEY=VALUE …]")
@click.option("--exec", "execute", is_flag=True, help="run the command; its exit code is ours")
def run(words: tuple[str, ...], execute: bool) -> int:
    from server.agents.skills.command_lines import PLACEHOLDER, filled, placeholders

    file, rest = _split(words)
    pairs = [word.partition("=") for word in rest]
    values = {key: value for key, equals, value in pairs if equals and PLACEHOLDER.fullmatch(f"{{{key}}}")}
    text = _request(
        [word for word, (key, equals, _) in zip(rest, pairs, strict=True) if not (equals and key in values)]
    )
    book = _open(file).book
    found = book.route(text)
    if not found:
        out("no skill matched")
        return 0
    skill = found[0].skill
    terminal.say(f"{clean(skill.name)}, because of {clean(', '.join(found[0].matched))}")
    _tell_chain(book, skill)
    if skill.tool is None:
        terminal.say("it has no command: these are its instructions")
        out(clean(skill.body, keep_lines=True))
        return 0
    missing = [name for name in placeholders(skill.tool) if name not in values]
    out(clean(filled(skill.tool, values)))
    if not missing:
        return _run(skill.tool, values) if execute else 0
    if execute:
        raise terminal.CliError(f"there is no value for {', '.join(missing)}", hint=f"{missing[0]}=VALUE")
    terminal.say_hint(f"fill in {' '.join(f'{name}=' for name in missing)}")
    return 0


@command.command("export", help="Print it as JSON, for programs that read no Markdown.")
@click.argument("file", required=False)
@click.option("--bodies", is_flag=True, help="with the instructions of every skill")
def export(file: str | None, bodies: bool) -> None:
    terminal.out_json(_open(file or USUAL_FILE).book.export(bodies=bodies))


def _split(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The document, where the first word names one, and the other words."""
    first = Path(words[0])
    if first.suffix.lower() == SUFFIX or (
        first.is_dir() and (any(first.glob("*/SKILL.md")) or (first / "SKILL.md").is_file())
    ):
        return words[0], words[1:]
    return USUAL_FILE, words


def _open(file: str) -> OpenedSkills:
    from server.agents.skills.skills_source import CannotOpenSkills, open_skills

    try:
        return open_skills(Path(file))
    except CannotOpenSkills as problem:
        hint = "ostiary skills new NAME" if not Path(file).exists() else f"ostiary skills check {quote(file)}"
        raise terminal.CliError(str(problem), hint=hint) from None


def _faults(path: Path) -> Sequence[SkillFault]:
    from server.agents.skills.skill_faults import faults_in
    from server.agents.skills.skills_source import CannotOpenSkills, document_text, open_skills

    try:
        return open_skills(path).faults if path.is_dir() else faults_in(document_text(path))
    except CannotOpenSkills as problem:
        raise terminal.Misuse(str(problem)) from None


def _request(words: Sequence[str]) -> str:
    text = " ".join(words).strip()
    if not text:
        raise terminal.Misuse("what is asked for is missing", hint='ostiary skills route "find every TODO"')
    return text


def _named(book: SkillBook, words: Sequence[str]) -> Skill:
    name = " ".join(words).strip()
    skill = book.get(name)
    if skill is not None:
        return skill
    if not name:
        raise terminal.Misuse("the name of a skill is missing")
    from difflib import get_close_matches

    near = get_close_matches(name, [skill.name for skill in book.skills], n=1)
    raise terminal.CliError(f"unknown skill: {name}", hint=f"did you mean {near[0]}?" if near else None)


def _tell_chain(book: SkillBook, skill: Skill) -> None:
    chain = [each.name for each in book.resolve(skill.name)]
    if len(chain) > 1:
        terminal.say(f"it comes with {clean(', '.join(chain[1:]))}")


def _run(template: str, values: Mapping[str, str]) -> int:
    import subprocess

    from server.agents.skills.command_lines import NeedsShell, arguments
    from server.cli.browser import environment_of_others

    try:
        words = arguments(template, values)
    except NeedsShell as problem:
        raise terminal.CliError(
            f"this command is for a shell: {problem}", hint="copy the line above into one, if you trust it"
        ) from None
    sys.stdout.flush()
    try:
        code = subprocess.run(words, env=environment_of_others(), check=False).returncode
    except (FileNotFoundError, PermissionError) as error:
        raise terminal.CliError(
            f"{words[0]} cannot be run: {(error.strerror or '').lower()}", exit_code=EXIT_NOT_FOUND
        ) from None
    return code if code >= 0 else EXIT_SIGNAL - code


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
