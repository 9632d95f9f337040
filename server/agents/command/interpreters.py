"""Commands whose arguments become code: interpreters, and programs that start others. Refused when the settings are read, where a caller
would write the code or name the program. A list of what is common, and no wall: what else a program makes of its arguments is its
author's to know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import msgspec

CODE: Final = 'would let callers write what is run; let the code take what it is given, e.g. ["sh", "-c", "curl -- \\"$1\\"", "sh", "{url}"]'
PROGRAM: Final = "lets callers choose the program; write its name"

T = TypeVar("T")


class CommandWord(Protocol):
    """A word of a command: texts and names of arguments by turns."""

    @property
    def texts(self) -> tuple[str, ...]: ...

    @property
    def names(self) -> tuple[str, ...]: ...


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is told what to run."""

    code: str = ""  # options of one letter whose value is code
    long: tuple[str, ...] = ()  # and those of a word
    values: str = ""  # other options of one letter that take a value
    commands: tuple[str, ...] = ()  # first words after which code comes
    ends: str = ""  # an option after whose value all is another program's
    files: str = ""  # options that name the code, so that it is no operand
    shell: bool = False  # its code is the first operand, if it is said that there is any
    anywhere: bool = False  # options may come after operands
    loose: bool = False  # one dash before options of a word, and all that follows the code is code
    line: int | None = None  # operands from this one on are code, or are put together to a shell's line


class Starter(msgspec.Struct, frozen=True, kw_only=True):
    """A program whose operand is another program, with arguments."""

    values: str = ""
    takes: tuple[str, ...] = ()  # options of a word whose value is the next one
    picks: tuple[str, ...] = ()  # options whose value says where it comes from
    skips: int = 0  # operands before it
    fixed: bool = False  # which are part of it
    names: str = ""  # an option that names it in front of these
    code: str = ""
    long: tuple[str, ...] = ()
    sets: bool = False  # NAME=value may stand before it
    commands: Mapping[str, Starter] = MappingProxyType({})  # first words behind which alone it starts one


_NODE: Final = Interpreter(code="epr", long=("eval", "print", "require", "import", "preload"), values="C")
_LINE: Final = ("command", "session-command")
_INTERPRETERS: Final[Mapping[str, Interpreter]] = MappingProxyType(
    {
        r"(?:ba|da|z|k|a|c|tc|mk|rb)?sh[\d.]*": Interpreter(code="c", values="oO", shell=True),
        r"fish": Interpreter(code="cC", long=("command", "init-command"), values="dfo", shell=True),
        r"pwsh|powershell": Interpreter(
            long=("command", "commandwithargs", "cwa", "encodedcommand", "ec"), loose=True
        ),
        r"(?:i?python|pypy)[\d.]*(?:-dbg)?": Interpreter(code="c", values="WX", ends="m"),
        r"perl[\d.]*": Interpreter(code="eEMm", values="I"),
        r"ruby[\d.]*": Interpreter(code="er", values="CEFIKW"),
        r"node|nodejs|tsx|ts-node": _NODE,
        r"bun": msgspec.structs.replace(_NODE, commands=("exec", "x")),
        r"deno": Interpreter(commands=("eval",)),
        r"php[\d.]*": Interpreter(
            code="BREr", long=("run", "process-begin", "process-code", "process-end"), values="cdfStz"
        ),
        r"lua(?:jit)?[\d.]*": Interpreter(code="e", values="l"),
        r"osascript": Interpreter(code="e", values="ls"),
        r"Rscript|groovy|guile|racket|julia|elixir": Interpreter(code="ceE", long=("eval", "print")),
    }
)
# In the place of a program alone: as other words these may mean anything.
_READERS: Final[Mapping[str, Interpreter]] = MappingProxyType(
    {
        r"[gmn]?awk|original-awk": Interpreter(
            code="e", long=("source",), values="FEfilv", files="fE", line=0
        ),
        r"g?sed": Interpreter(code="e", long=("expression",), values="fl", files="f", line=0),
        r"psql": Interpreter(code="c", long=("command",), values="dFfhLopPRTUv", files="f", anywhere=True),
        r"mysql|mariadb": Interpreter(
            code="e", long=("execute", "init-command"), values="DhPSu", anywhere=True
        ),
        r"sqlite3?": Interpreter(line=1),
        r"n?vim|vi|view|ex|[gr]vim|vimdiff": Interpreter(
            code="c", long=("cmd",), values="iSTuUW", anywhere=True
        ),
        # Before its command: behind that, -c is another.
        r"git": Interpreter(code="c", long=("config-env", "exec-path"), values="C"),
        r"R|scala|ghc|expect": Interpreter(code="ceE", long=("eval", "print")),
        r"su|runuser": Interpreter(code="c", long=_LINE, values="gGsw", anywhere=True),
        r"script": Interpreter(code="c", long=_LINE, values="BEIOTmo", anywhere=True),
        r"ssh": Interpreter(code="o", values="BbcDEeFIiJLlmOpQRSWw", line=1),
        r"watch": Interpreter(values="nq", line=0),
        r"parallel": Interpreter(values="aCdDEIijlLnNPsSUX", line=0),
        r"rsync": Interpreter(code="e", long=("rsh", "rsync-path"), values="fBTM", anywhere=True),
    }
)
_PACKAGE: Final = Starter(
    code="c",
    values="pw",
    takes=("registry", "cache", "prefix", "workspace"),
    picks=("-p", "--package"),
    long=("call",),
)
_UVX: Final = Starter(
    values="cfiPpw",
    takes=(
        "python", "with-editable", "with-requirements", "index", "index-url", "extra-index-url", "default-index", "find-links", "env-file",
        "directory", "project", "cache-dir", "config-file", "extra", "group", "only-group",
    ),
    picks=("-w", "--with", "--from"),
)  # fmt: skip
_IN_CONTAINER: Final = Starter(
    values="aceHhLlmpuvw",
    takes=(
        "name", "env", "env-file", "volume", "mount", "workdir", "user", "network", "net", "publish", "platform", "pull", "memory",
        "cpus", "label", "hostname", "add-host", "cap-add", "cap-drop", "security-opt", "ulimit", "device", "gpus", "tmpfs", "detach-keys",
    ),
    skips=1,
)  # fmt: skip
_RUN: Final = MappingProxyType({"run": Starter()})
_STARTERS: Final[Mapping[str, Starter]] = MappingProxyType(
    {
        r"npx|bunx|pnpx": _PACKAGE,
        r"npm": Starter(commands=MappingProxyType({"exec": _PACKAGE, "x": _PACKAGE})),
        r"pnpm|yarn": Starter(commands=MappingProxyType({"dlx": _PACKAGE, "exec": _PACKAGE})),
        r"uvx": _UVX,
        r"uv": msgspec.structs.replace(
            _UVX,
            picks=(),
            commands=MappingProxyType(
                {
                    "run": msgspec.structs.replace(
                        _UVX, values=_UVX.values + "m", picks=(*_UVX.picks, "-m", "--module")
                    ),
                    "tool": Starter(commands=MappingProxyType({"run": _UVX})),
                }
            ),
        ),
        r"pipx|poetry|pipenv|pdm|hatch|rye": Starter(commands=_RUN),
        r"conda|mamba|micromamba": Starter(commands=MappingProxyType({"run": Starter(values="np")})),
        r"docker|podman|nerdctl": Starter(
            values="cHl",
            takes=("context", "host", "config", "log-level"),
            commands=MappingProxyType(
                {
                    "run": msgspec.structs.replace(_IN_CONTAINER, fixed=True, names="--entrypoint"),
                    "exec": _IN_CONTAINER,
                }
            ),
        ),
        r"kubectl|oc": Starter(
            values="nsv",
            takes=("namespace", "context", "kubeconfig", "cluster", "user"),
            commands=MappingProxyType(
                {"exec": Starter(values="cfn", takes=("container", "namespace"), skips=1)}
            ),
        ),
        r"nsenter": Starter(values="GSt", takes=("target",)),
        r"unshare": Starter(values="GRSw"),
        r"xvfb-run": Starter(values="efnpsw"),
        r"dbus-run-session|entr": Starter(),
        r"busybox|toybox|nohup|setsid|setpriv|catchsegv|eatmydata": Starter(),
        r"env": Starter(values="uCa", code="S", long=("split-string",), sets=True),
        r"nice": Starter(values="n"),
        r"ionice": Starter(values="cnp"),
        r"chrt|taskset": Starter(skips=1),
        r"chroot": Starter(skips=1),
        r"flock": Starter(values="Ew", skips=1, code="c", long=("command",)),
        r"timeout": Starter(values="ks", skips=1),
        r"time": Starter(values="fo"),
        r"stdbuf": Starter(values="ioe"),
        r"sudo|doas": Starter(values="CDghpRrTtUu", sets=True),
        r"xargs": Starter(values="adEILnPs"),
        r"strace|ltrace": Starter(values="aeEoOpsSuX"),
        r"systemd-run": Starter(values="HMpuEt"),
    }
)
_EXECUTES: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})  # of find
_SWITCHES: Final = ("no", "l", "i", "st", "mta")  # of PowerShell: options without a value
_SETTING: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Variables that say what a program loads or starts.
_LOADING: Final = re.compile(
    r"(?:LD_|DYLD_)\w+|PATH|(?:PYTHON|PERL5|RUBY|NODE_|JAVA_|GIT_|BASH_)\w+|CLASSPATH|_JAVA_OPTIONS|ENV|PROMPT_COMMAND|EDITOR|VISUAL|PAGER|SHELL"
)


class _PlainWord(msgspec.Struct, frozen=True):
    """A word in which nothing is filled in."""

    texts: tuple[str, ...]
    names: tuple[str, ...] = ()


def refuse_code(words: Sequence[CommandWord], *, allow_dashes: bool, fed: bool = False) -> None:
    """Raise `ValueError` where a caller would write code, or name a program. `allow_dashes`: values may begin with a dash. `fed`: the
    program reads what a caller says."""
    _refuse_at(words, 0, allow_dashes=allow_dashes, fed=fed)
    for place, word in enumerate(words):
        found = _known(_INTERPRETERS, word)
        if found is not None:
            _ReadWords(found, words[place + 1 :], allow_dashes=allow_dashes).refuse()


def _refuse_at(words: Sequence[CommandWord], place: int, *, allow_dashes: bool, fed: bool = False) -> None:
    """Refuse what stands in the place of a program."""
    while place < len(words):
        word = words[place]
        if word.names:
            raise ValueError(PROGRAM)
        found = _known(_READERS, word) or _known(_INTERPRETERS, word)
        if found is not None:
            _ReadWords(found, words[place + 1 :], allow_dashes=allow_dashes, fed=fed).refuse()
            return
        if PurePath(word.texts[0]).name == "find":
            for at, option in enumerate(words[place + 1 :], place + 2):
                if not option.names and option.texts[0] in _EXECUTES:
                    _refuse_at(words, at, allow_dashes=allow_dashes)
            return
        starter = _known(_STARTERS, word)
        if starter is None:
            return
        place = _started(starter, words, place + 1, allow_dashes=allow_dashes, fed=fed)


def _started(
    starter: Starter, words: Sequence[CommandWord], place: int, *, allow_dashes: bool, fed: bool
) -> int:
    """Return the place of the program that is started; the end where there is none any more. Raises `ValueError`."""
    skips = starter.skips
    named: CommandWord | None = None
    while place < len(words):
        word, place = words[place], place + 1
        text = word.texts[0]
        if starter.sets and _SETTING.match(text):
            if word.names and _LOADING.fullmatch(text.partition("=")[0]):
                raise ValueError(CODE)
            continue
        if text in ("-", "--") and not word.names:
            continue
        if not text.startswith("-") or text == "-":
            if starter.commands:
                found = None if word.names else starter.commands.get(text)
                if found is None:
                    return len(words)
                return _started(found, words, place, allow_dashes=allow_dashes, fed=fed)
            if skips == 0:
                return place - 1
            if starter.fixed and word.names:
                raise ValueError(PROGRAM)
            skips -= 1
            if named is not None and skips == 0:
                _refuse_at([named, *words[place:]], 0, allow_dashes=allow_dashes, fed=fed)
                return len(words)
            continue
        name, equals, value = text[2:].partition("=")
        if text.startswith("--"):
            if word.names and not equals:
                raise ValueError(PROGRAM)
            if f"--{name}" in (*starter.picks, starter.names):
                _refuse_value(word, words[place : place + 1], glued=bool(equals), why=PROGRAM)
                if f"--{name}" == starter.names:
                    named = _PlainWord((value,)) if equals else next(iter(words[place : place + 1]), None)
                place += not equals
                continue
            if name in starter.takes:
                place += not equals
                continue
            if not name or not any(each.startswith(name) for each in starter.long):
                continue
            is_code, glued = True, bool(equals)
        else:
            letters = text[1:]
            at = next((at for at, each in enumerate(letters) if each in starter.code + starter.values), None)
            if at is None:
                if word.names:  # they would choose the letters
                    raise ValueError(PROGRAM)
                continue
            value = letters[at + 1 :]
            is_code, glued = letters[at] in starter.code, bool(value or word.names)
            if f"-{letters[at]}" in starter.picks:
                _refuse_value(word, words[place : place + 1], glued=glued, why=PROGRAM)
        if is_code:
            _refuse_value(word, words[place : place + 1], glued=glued)
            code = value if glued else "".join(each.texts[0] for each in words[place : place + 1])
            # What follows is put behind it.
            line = [_PlainWord((each,)) for each in code.split()]
            refuse_code([*line, *words[place + (not glued) :]], allow_dashes=allow_dashes, fed=fed)
            return len(words)
        place += not glued
    return place


def _refuse_value(word: CommandWord, after: Sequence[CommandWord], *, glued: bool, why: str = CODE) -> None:
    if any(each.names for each in ((word,) if glued else after)):
        raise ValueError(why)


class _ReadWords:
    """The words after an interpreter, read as it reads them."""

    def __init__(
        self,
        interpreter: Interpreter,
        words: Sequence[CommandWord],
        *,
        allow_dashes: bool,
        fed: bool = False,
    ) -> None:
        self._interpreter = interpreter
        self._words = words
        self._allow_dashes = allow_dashes
        self._fed = fed
        self._place = 0
        self._operands = 0
        self._has_code = False
        self._awaits_code = False  # as the next operand

    def refuse(self) -> None:
        """Raise `ValueError` where a caller would write the code."""
        guarded = False
        while self._place < len(self._words):
            word = self._words[self._place]
            self._place += 1
            text = word.texts[0]
            if not guarded and text == "--" and not word.names:
                guarded = True
            elif guarded or len(text) < 2 or text[0] not in "-+":
                if word.names and not guarded and (text or self._allow_dashes) and text in ("", "-", "+"):
                    raise ValueError(CODE)  # it may be an option
                if self._is_last(word):
                    break
            elif self._ends_with(word, text):
                return
        if self._fed and not self._has_code:
            raise ValueError(CODE)

    def _is_last(self, word: CommandWord) -> bool:
        """Read an operand, and say whether what comes after it is the code's own. Raises `ValueError`."""
        how, place = self._interpreter, self._operands
        self._operands += 1
        if word.names and (self._awaits_code or self._in_line(place)):
            raise ValueError(CODE)
        if place == 0 and not word.names and word.texts[0] in how.commands:
            self._awaits_code = True
            return False
        if how.line is None:
            self._has_code = self._has_code or self._awaits_code or word.texts[0] != "-"
            return not how.anywhere
        in_line = self._in_line(place)
        self._has_code = self._has_code or in_line
        # An awk's program is its first operand, and the others are files; elsewhere all make up a line.
        return self._has_code and bool(how.files)

    def _in_line(self, place: int) -> bool:
        line = self._interpreter.line
        return line is not None and place >= line and not (self._has_code and bool(self._interpreter.files))

    def _ends_with(self, word: CommandWord, text: str) -> bool:
        """Read an option, and say whether what comes after it is the code's own. Raises `ValueError`."""
        how = self._interpreter
        if how.loose:
            return self._is_loose(word, text)
        if text.startswith("--"):
            name, equals, _ = text[2:].partition("=")
            if word.names and not equals:
                raise ValueError(CODE)
            if name and any(each.startswith(name) for each in how.long):
                if how.shell and not equals:
                    self._awaits_code = True
                else:
                    self._take_code(word, glued=bool(equals))
            elif how.files and name in ("file", "exec"):
                self._has_code = True
                self._place += not equals
            return False
        for at, letter in enumerate(text[1:], 2):
            glued = bool(text[at:] or word.names)
            if letter in how.ends:
                _refuse_value(word, self._words[self._place : self._place + 1], glued=glued, why=PROGRAM)
                return True
            if how.shell and letter in how.code:
                self._awaits_code = True
            elif letter in how.code:
                self._take_code(word, glued=glued)
                return False
            elif letter in how.values:
                self._has_code = self._has_code or letter in how.files
                self._place += not glued
                return False
        if word.names:  # they would choose the letters
            raise ValueError(CODE)
        return False

    def _is_loose(self, word: CommandWord, text: str) -> bool:
        """Read an option that is a word behind one dash, of which the beginning is enough. Returns and raises as `_ends_with`."""
        name = text.strip("-").partition(":")[0].casefold()
        if name and any(each.startswith(name) for each in self._interpreter.long):
            if any(each.names for each in (word, *self._words[self._place :])):
                raise ValueError(CODE)
            return True
        if word.names and ":" not in text:
            raise ValueError(CODE)
        if "file".startswith(name):
            return True
        self._place += not name.startswith(_SWITCHES)
        return False

    def _take_code(self, word: CommandWord, *, glued: bool) -> None:
        _refuse_value(word, self._words[self._place : self._place + 1], glued=glued)
        self._has_code = True
        self._place += not glued


def _known(table: Mapping[str, T], word: CommandWord) -> T | None:
    if word.names:
        return None
    name = PurePath(word.texts[0]).name
    return next((found for pattern, found in table.items() if re.fullmatch(pattern, name)), None)
