"""What there is to type, as values: every command with its arguments and options, read from what help is made from. The manual page
and the completion of three shells are written from these."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import click

from server.cli import SECTIONS, load, root, spoken

# How places are called where help names what to type.
FILES: Final = frozenset({"FILE", "[FILE|-]", "FILES", "PATH", "OUTFILE", "TARGET", "OTHER", "COPY"})
FOLDERS: Final = frozenset({"DIR", "FOLDER"})


class Typed(NamedTuple):
    """What may stand in the place of an argument, or behind an option."""

    name: str
    choices: tuple[str, ...] = ()

    @property
    def is_file(self) -> bool:
        return self.name in FILES

    @property
    def is_folder(self) -> bool:
        return self.name in FOLDERS


class OptionOutline(NamedTuple):
    names: tuple[str, ...]  # all that it is called, long ones last
    shown: str  # as help has it, with what is typed behind it
    help: str
    value: Typed | None  # None: nothing is typed behind it


class CommandOutline(NamedTuple):
    words: tuple[str, ...]  # what is typed to get there; none for the program itself
    summary: str
    usage: str
    paragraphs: tuple[str, ...]  # of its help; one whose lines stay as they are begins with \\b
    arguments: tuple[Typed, ...]
    options: tuple[OptionOutline, ...]
    commands: tuple[CommandOutline, ...]

    def all(self) -> Iterator[CommandOutline]:
        """This one, and those below it."""
        yield self
        for each in self.commands:
            yield from each.all()


class SectionOutline(NamedTuple):
    title: str
    commands: tuple[CommandOutline, ...]


def sections() -> tuple[SectionOutline, ...]:
    """All commands, as the overview groups them. Every command's module is imported for this."""
    with root.context_class(root, info_name="ostiary") as top:
        return tuple(
            SectionOutline(
                title, tuple(_outline(load(name), name, entry.help, top) for name, entry in commands.items())
            )
            for title, commands in SECTIONS.items()
        )


def program(groups: tuple[SectionOutline, ...]) -> CommandOutline:
    """The program itself: what may be typed first."""
    with root.context_class(root, info_name="ostiary", help_option_names=["-h", "--help"]) as top:
        options = _options(root, top)
    below = tuple(command for group in groups for command in group.commands)
    return CommandOutline((), "", "COMMAND …", (), (), options, below)


def _outline(command: click.Command, name: str, summary: str, above: click.Context) -> CommandOutline:
    context = command.context_class(command, info_name=name, parent=above, help_option_names=["-h", "--help"])
    with context:
        words = (*context.command_path.split()[1:],)
        children: Mapping[str, click.Command] = (
            command.commands if isinstance(command, click.Group) else MappingProxyType({})
        )
        return CommandOutline(
            words=words,
            summary=summary,
            usage=" ".join(command.collect_usage_pieces(context)),
            paragraphs=_paragraphs(command.help or ""),
            arguments=tuple(
                dict.fromkeys(
                    _typed(parameter, context)
                    for parameter in command.params
                    if isinstance(parameter, click.Argument)
                )
            ),
            options=_options(command, context),
            commands=tuple(
                _outline(child, child_name, child.short_help or "", context)
                for child_name, child in children.items()
                if not child.hidden
            ),
        )


def _options(command: click.Command, context: click.Context) -> tuple[OptionOutline, ...]:
    found: list[OptionOutline] = []
    for parameter in command.get_params(context):
        row = parameter.get_help_record(context)
        if row is None or not isinstance(parameter, click.Option):
            continue
        names = sorted({*parameter.opts, *parameter.secondary_opts}, key=lambda name: (len(name), name))
        flag = parameter.is_flag or parameter.count
        shown, said = spoken(*row)
        found.append(OptionOutline(tuple(names), shown, said, None if flag else _typed(parameter, context)))
    return tuple(found)


def _typed(parameter: click.Parameter, context: click.Context) -> Typed:
    choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
    if isinstance(parameter.type, click.Path):
        return Typed("FILE")
    return Typed(
        parameter.metavar or (parameter.name or "").upper(), tuple(str(choice) for choice in choices)
    )


def _paragraphs(text: str) -> tuple[str, ...]:
    whole = inspect.cleandoc(text.partition("\f")[0])
    return tuple(part.strip("\n") for part in whole.split("\n\n") if part.strip())
