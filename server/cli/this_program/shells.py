"""Completion for three shells, written from the outline of all commands. Each script is whole: a shell that completes starts no program.

The three do the same. They walk the words that are there and keep `where`, the command that was reached, as in " keys list"; the value
behind an option is passed over. Then they offer what may stand there: commands, choices, files, or options after a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from server import __version__
from server.cli.this_program.outline import CommandOutline, Typed

# What the scripts call a place: `file` and `folder` are completed by the shell, `words` are ours, `other` is anything.
Kind = str


def script_for(shell: str, program: CommandOutline) -> str:
    return _WRITERS[shell](program)


def _where(command: CommandOutline) -> str:
    return "".join(f" {word}" for word in command.words)


def _kind(typed: Typed) -> Kind:
    if typed.choices:
        return "words"
    return "file" if typed.is_file else "folder" if typed.is_folder else "other"


def _values(program: CommandOutline) -> dict[tuple[Kind, tuple[str, ...]], list[str]]:
    """Behind which options something is typed, by what that is: kind and choices → " keys list --data-dir"."""
    found: dict[tuple[Kind, tuple[str, ...]], list[str]] = {}
    for command in program.all():
        for option in command.options:
            if option.value is not None:
                places = found.setdefault((_kind(option.value), option.value.choices), [])
                places += [f"{_where(command)} {name}" for name in option.names]
    return found


def _arguments(command: CommandOutline) -> tuple[Kind, tuple[str, ...]]:
    """What may stand where no option is: a file if any argument is one, and every choice of any."""
    kinds = {_kind(typed) for typed in command.arguments}
    choices = tuple(choice for typed in command.arguments for choice in typed.choices)
    return next((kind for kind in ("file", "folder") if kind in kinds), "words"), choices


def _plain(text: str) -> str:
    """A description in one line, within single quotes."""
    return " ".join(text.split()).replace("'", "’")


def _alternatives(places: Iterable[str]) -> str:
    return " | ".join(f'"{place}"' for place in places)


def _bash(program: CommandOutline) -> str:
    commands = [_where(each) for each in program.all() if each.words]
    lines = [
        f"# Completion of ostiary {__version__} for bash, as `ostiary completion bash` writes it.",
        "_ostiary_value() {",
        "    kind= choices=",
        '    case "$1" in',
    ]
    for (kind, choices), places in _values(program).items():
        lines.append(f"        {_alternatives(places)}) kind={kind} choices='{' '.join(choices)}' ;;")
    lines += ["        *) return 1 ;;", "    esac", "}", "", "_ostiary_here() {", '    case "$1" in']
    for command in program.all():
        kind, choices = _arguments(command)
        words = " ".join([*(each.words[-1] for each in command.commands), *choices])
        options = " ".join(option.names[-1] for option in command.options)
        lines.append(f"        \"{_where(command)}\") kind={kind} choices='{words}' options='{options}' ;;")
    lines += ["    esac", "}", ""]
    return "\n".join(lines) + _BASH.replace("COMMANDS", _alternatives(commands))


_BASH: Final = """\
_ostiary() {
    local where='' kind='' choices='' options='' word i
    local current=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == -- ]]; then
            kind=file
            break
        fi
        if _ostiary_value "$where $word"; then
            # bash takes --name=value apart.
            if ((i + 1 < COMP_CWORD)) && [[ ${COMP_WORDS[i + 1]} == = ]]; then ((i++)); fi
            ((i++))
            if ((i >= COMP_CWORD)); then break; fi
        else
            case "$where $word" in
                COMMANDS) where="$where $word" ;;
            esac
        fi
        kind=''
    done
    if [[ $current == = ]]; then current=''; fi
    if [[ -z $kind ]]; then
        _ostiary_here "$where"
        if [[ $current == -* ]]; then kind=words choices=$options; fi
    fi
    case $kind in
        file)
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
            ;;
        folder)
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -d -- "$current")
            ;;
    esac
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$choices" -- "$current")
}
complete -F _ostiary ostiary
"""


def _zsh(program: CommandOutline) -> str:
    commands = [_where(each) for each in program.all() if each.words]
    lines = [
        "#compdef ostiary",
        f"# Completion of ostiary {__version__} for zsh, as `ostiary completion zsh` writes it.",
        "_ostiary_value() {",
        "    kind= choices=()",
        '    case "$1" in',
    ]
    for (kind, choices), places in _values(program).items():
        lines.append(f"        ({_alternatives(places)}) kind={kind} choices=({_zsh_words(choices)}) ;;")
    lines += ["        (*) return 1 ;;", "    esac", "}", "", "_ostiary_here() {", '    case "$1" in']
    for command in program.all():
        kind, choices = _arguments(command)
        below = [_zsh_row(each.words[-1], each.summary) for each in command.commands]
        options = [_zsh_row(option.names[-1], option.help) for option in command.options]
        lines += [
            f'        ("{_where(command)}")',
            f"            kind={kind} choices=({_zsh_words(choices)})",
            f"            below=({' '.join(below)})",
            f"            options=({' '.join(options)}) ;;",
        ]
    lines += ["    esac", "}", ""]
    return "\n".join(lines) + _ZSH.replace("COMMANDS", _alternatives(commands))


def _zsh_words(words: Iterable[str]) -> str:
    return " ".join(f"'{word}'" for word in words)


def _zsh_row(name: str, said: str) -> str:
    return f"'{name}:{_plain(said)}'"


_ZSH: Final = """\
_ostiary() {
    local where='' kind='' word
    local -a choices below options
    local -i i
    for ((i = 2; i < CURRENT; i++)); do
        word=${words[i]}
        if [[ $word == -- ]]; then
            kind=file
            break
        fi
        if _ostiary_value "$where $word"; then
            ((i++))
            if ((i >= CURRENT)); then break; fi
        else
            case "$where $word" in
                (COMMANDS) where="$where $word" ;;
            esac
        fi
        kind='' choices=()
    done
    if [[ -z $kind && $PREFIX == --*=* ]] && _ostiary_value "$where ${PREFIX%%=*}"; then
        compset -P '*='
    fi
    if [[ -z $kind ]]; then
        _ostiary_here "$where"
        if [[ $PREFIX == -* ]]; then
            _describe -o 'option' options
            return
        fi
    fi
    local -i found=1
    case $kind in
        (file) _files && found=0 ;;
        (folder) _files -/ && found=0 ;;
    esac
    if (($#choices)); then compadd -a choices && found=0; fi
    if (($#below)); then _describe 'command' below && found=0; fi
    return found
}
# As a file in $fpath this is the body of the function; read by `source` it only has to be made known.
if [[ $funcstack[1] == _ostiary ]]; then _ostiary "$@"; else compdef _ostiary ostiary; fi
"""


def _fish(program: CommandOutline) -> str:
    commands = [_where(each) for each in program.all() if each.words]
    values = [place for places in _values(program).values() for place in places]
    lines = [
        f"# Completion of ostiary {__version__} for fish, as `ostiary completion fish` writes it.",
        f"set -g __ostiary_commands {_zsh_words(commands)}",
        f"set -g __ostiary_values {_zsh_words(values)}",
        _FISH,
        "complete -c ostiary -e",
        "complete -c ostiary -f",
    ]
    for command in program.all():
        here = f"complete -c ostiary -n '__ostiary_at \"{_where(command)}\"'"
        kind, choices = _arguments(command)
        lines += [f"{here} -a {each.words[-1]} -d '{_plain(each.summary)}'" for each in command.commands]
        if choices:
            lines.append(f"{here} -a '{' '.join(choices)}'")
        if kind == "file":
            lines.append(f"{here} -F")
        if kind == "folder":
            lines.append(f"{here} -a '(__fish_complete_directories (commandline -ct))'")
        for option in command.options:
            named = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            behind = "" if option.value is None else _FISH_VALUES[_kind(option.value)]
            behind = behind.replace("CHOICES", " ".join(option.value.choices) if option.value else "")
            lines.append(f"{here} {named}{behind} -d '{_plain(option.help)}'")
    return "\n".join(lines) + "\n"


_FISH_VALUES: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "file": " -r -F",
        "folder": " -x -a '(__fish_complete_directories (commandline -ct))'",
        "words": " -x -a 'CHOICES'",
        "other": " -x",
    }
)

_FISH: Final = """\
function __ostiary_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l where ''
    set -l passed 0
    for word in $words
        if test $passed = 1
            set passed 0
        else if test "x$word" = x--
            return 1
        else if contains -- "$where $word" $__ostiary_values
            set passed 1
        else if contains -- "$where $word" $__ostiary_commands
            set where "$where $word"
        end
    end
    test "x$where" = "x$argv[1]"
end"""

_WRITERS: Final[Mapping[str, Callable[[CommandOutline], str]]] = MappingProxyType(
    {"bash": _bash, "zsh": _zsh, "fish": _fish}
)
