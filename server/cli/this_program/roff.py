"""The manual page ostiary(1), in the language of man(7), from the outline of all commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from server import __version__
from server.cli.this_program.outline import CommandOutline, OptionOutline, SectionOutline

# A paragraph of a command's help whose lines stay as they are begins with this, as click has it.
AS_IT_IS: Final = "\b"

_DESCRIPTION: Final = (
    "Ostiary serves an agent over MCP (the Model Context Protocol), is its own OAuth 2.1 authorization server, and runs no tool for a"
    " caller whom nobody let in. The same program is the client: it logs in to such servers and calls their tools.",
    "Results go to standard output, everything else to standard error. Most commands take --json.",
)
_EXIT_CODES: Final = (
    ("0", "done"),
    ("1", "failed; trying again may help"),
    ("2", "misused: an option, an argument or a setting is wrong"),
    ("78", "failed, and will until somebody mends it"),
    ("130, 143", "stopped by Ctrl-C, by SIGTERM"),
)
_FILES: Final = (
    ("./ostiary.toml, ~/.config/ostiary/ostiary.toml", "settings of the server, the first that is there"),
    ("~/.local/share/ostiary/", "the server's database and keys, unless data_dir names another place"),
    ("~/.config/ostiary/", "logins from this machine, and names of servers"),
)
_ENVIRONMENT: Final = (
    ("OSTIARY_CONFIG", "the settings file"),
    ("OSTIARY_PORT and so on", "every setting by its own name; a flag comes before it, the file after it"),
    ("OSTIARY_CONFIG_HOME", "where logins from this machine are kept"),
    ("NO_COLOR", "no colours"),
)


def manual(groups: Sequence[SectionOutline], program: CommandOutline) -> str:
    lines = [
        f'.TH OSTIARY 1 "" "ostiary {__version__}" "User Commands"',
        # No hyphenation, ragged right: what is typed must be found as it is typed.
        ".nh",
        ".ad l",
        ".SH NAME",
        r"ostiary \- a door in front of an agent: MCP over HTTP, with its own login",
        ".SH SYNOPSIS",
        ".B ostiary",
        r"\fICOMMAND\fR \&…",
        ".SH DESCRIPTION",
        *_paragraphs(_DESCRIPTION),
        ".SH OPTIONS",
        *_options(program.options),
        ".SH COMMANDS",
    ]
    for group in groups:
        lines += [".PP", rf"\fI{_text(group.title)}\fR"]
        for command in group.commands:
            lines += [".TP 18", rf"\fB{_text(' '.join(command.words))}\fR", _line(command.summary)]
    for group in groups:
        lines.append(f".SH {_quoted(group.title.upper())}")
        for command in group.commands:
            for each in command.all():
                lines += _command(each)
    for title, rows in (("EXIT STATUS", _EXIT_CODES), ("FILES", _FILES), ("ENVIRONMENT", _ENVIRONMENT)):
        lines.append(f".SH {_quoted(title)}")
        for name, said in rows:
            lines += [".TP", rf"\fB{_text(name)}\fR", _line(said)]
    return "\n".join(lines) + "\n"


def _command(command: CommandOutline) -> list[str]:
    lines = [
        f".SS {_quoted('ostiary ' + ' '.join(command.words))}",
        _line(f"ostiary {' '.join(command.words)} {command.usage}".rstrip()),
    ]
    lines += _paragraphs(command.paragraphs)
    return lines + _options(command.options)


def _paragraphs(paragraphs: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for paragraph in paragraphs:
        if paragraph.startswith(AS_IT_IS):
            kept = paragraph.removeprefix(AS_IT_IS).strip("\n").splitlines()
            lines += [".PP", ".RS 4", ".nf", *map(_line, kept), ".fi", ".RE"]
        else:
            lines += [".PP", _line(" ".join(paragraph.split()))]
    return lines


def _options(options: Sequence[OptionOutline]) -> list[str]:
    lines: list[str] = []
    for option in options:
        lines += [".TP", rf"\fB{_text(option.shown)}\fR", _line(option.help)]
    return lines


def _text(text: str) -> str:
    """Backslashes and quotes as they are; a dash as it is typed, not as it is set."""
    return text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")


def _line(text: str) -> str:
    """A line of text, also where it begins as a request would."""
    said = _text(text)
    return rf"\&{said}" if re.match(r"[.\\]", said) or not said else said


def _quoted(text: str) -> str:
    return '"' + _text(text).replace('"', r"\(dq") + '"'
