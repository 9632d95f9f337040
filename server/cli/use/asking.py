"""Questions of a tool, put to the person at the terminal or answered by `--answer`: forms field by field, pages by address.

Every word of a question comes from a server. It stands behind a bar at the left edge, wrapped, cleaned and cut, below a line
that says who asks; what stands at the edge itself is ours. What may be typed where is in server/client/typed_forms.py.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from server.cli import terminal
from server.cli.terminal import CliError, Misuse, StatusLine, clean, cut, paint, say
from server.client.server_info import ServerInfo
from server.client.server_questions import DECLINED, FormQuestion, Mode, PageQuestion, Question, accepted
from server.client.typed_forms import BadValue, FormField, nothing, parse, wanted
from server.lib.oauth_client.addresses import host_of, is_loopback
from server.lib.shortened import short_name

HOW_TO_ANSWER: Final = "enter takes what is in [ ], ctrl-d declines, ctrl-c ends the call"
# A screenful or two. What is cut off is said to be.
MAX_MESSAGE: Final = 4000
MAX_LINES: Final = 60
MAX_OPTIONS_SHOWN: Final = 100
# So short that what is quoted in a line of ours cannot reach the next one.
QUOTED: Final = 40
# A terminal gives no longer line.
MAX_LINE: Final = 64 * 1024


class GivenAnswers:
    """`--answer [KEY.]FIELD=VALUE` words. Each answers one field of one question, once: the next question that looks alike
    takes the next word."""

    def __init__(self, words: Sequence[str]) -> None:
        self._left: list[tuple[str, str]] = []
        for word in words:
            path, equals, value = word.partition("=")
            if not equals or not path:
                raise Misuse(
                    f"--answer takes field=value, not “{short_name(word)}”", hint="ostiary call --help"
                )
            self._left.append((path, value))

    @property
    def unused(self) -> list[str]:
        return list(dict.fromkeys(path for path, _ in self._left))

    def take(self, key: str, question: FormQuestion, *, alone: bool) -> dict[str, Any]:
        """The values that are there for a question, by field. The key may be missing where the question stands alone, the
        field where it is the only one."""
        found: dict[str, Any] = {}
        for field in question.fields:
            paths = {f"{key}.{field.name}"}
            paths |= {field.name} if alone else set()
            paths |= {key} if len(question.fields) == 1 else set()
            words = [word for word in self._left if word[0] in paths]
            if not words:
                continue
            # Several choices may be several words.
            taken = words if field.kind == "choices" else words[:1]
            for word in taken:
                self._left.remove(word)
            found[field.name] = _value(field, ",".join(value for _, value in taken))
        return found


class QuestionScreen:
    """Answers what a tool asks. `by_hand`: there is a person at the terminal; without one, only `--answer` does."""

    def __init__(self, url: str, given: GivenAnswers, *, by_hand: bool, status: StatusLine) -> None:
        self._host = host_of(url)
        self._given = given
        self._by_hand = by_hand
        self._status = status
        self._explained = False

    @property
    def modes(self) -> frozenset[Mode]:
        return frozenset({"form", "url"}) if self._by_hand else frozenset({"form"})

    async def __call__(
        self, server: ServerInfo, questions: Mapping[str, Question], /
    ) -> Mapping[str, Mapping[str, Any]]:
        with self._status.held():
            return await self._answer(server, questions)

    async def _answer(
        self, server: ServerInfo, questions: Mapping[str, Question]
    ) -> Mapping[str, Mapping[str, Any]]:
        alone = len(questions) == 1
        given = {
            key: self._given.take(key, question, alone=alone)
            for key, question in questions.items()
            if isinstance(question, FormQuestion)
        }
        answers: dict[str, Mapping[str, Any]] = {}
        for key, question in questions.items():
            if isinstance(question, FormQuestion) and _is_complete(question, given[key]):
                answers[key] = accepted(_content(question, given[key]))
        open_ones = {key: question for key, question in questions.items() if key not in answers}
        if open_ones and not self._by_hand:
            raise _unanswered(open_ones, given, alone=alone)
        for number, (key, question) in enumerate(open_ones.items(), 1):
            count = f", {number} of {len(open_ones)}" if len(open_ones) > 1 else ""
            if isinstance(question, FormQuestion):
                answers[key] = await self._form(question, given[key], self._head(server, "asks", count))
            else:
                answers[key] = await self._page(question, self._head(server, "wants a page opened", count))
        return answers

    def _head(self, server: ServerInfo, verb: str, count: str) -> str:
        # The host is what the person called; the name is what the server calls itself.
        name = cut(clean(server.title or server.name), QUOTED)
        # One that has no name but its program's says nothing with it, and would sound like this program.
        said = f" (“{name}”)" if name.strip().casefold() not in ("", "ostiary") else ""
        return f"{paint(clean(self._host), 'bold', sys.stderr)}{said} {verb}{count}"

    async def _form(self, question: FormQuestion, given: Mapping[str, Any], head: str) -> Mapping[str, Any]:
        _begin(head, question.message)
        if not question.fields:
            return accepted({}) if await agreed("agree [y/N]: ", enter=False) else _declined()
        if not self._explained:
            say(paint(HOW_TO_ANSWER, "dim", sys.stderr))
            self._explained = True
        while True:
            content: dict[str, Any] = {}
            for field in question.fields:
                if field.name in given:
                    _quote(f"{_label(field)} is given by --answer")
                    content[field.name] = given[field.name]
                    continue
                try:
                    value = await _field(field, bare=len(question.fields) == 1)
                except EOFError:
                    return _declined()
                if value is not None:
                    content[field.name] = value
            match await _choice("send this [Y/n/again]: ", ("yes", "no", "again"), enter="yes"):
                case "yes":
                    return accepted(content)
                case "again":
                    continue
                case _:
                    return _declined()

    async def _page(self, question: PageQuestion, head: str) -> Mapping[str, Any]:
        _begin(head, question.message)
        plain = question.url.startswith("http:") and not is_loopback(question.url)
        rows = [("site", f"{question.host}{', not encrypted' if plain else ''}"), ("address", question.url)]
        for line in terminal.columns([(paint(name, "dim", sys.stderr), what) for name, what in rows]):
            say(line)
        say("nothing is opened from here: open the address yourself, if you trust the site")
        return accepted() if await agreed("done there [y/n]: ", enter=None) else _declined()


# ---- what was given --------------------------------------------------------------------------------------------------


def _value(field: FormField, text: str) -> Any:
    try:
        return parse(field, text)
    except BadValue as error:
        raise Misuse(f"--answer {short_name(field.name)}: {error}") from None


def _is_complete(question: FormQuestion, given: Mapping[str, Any]) -> bool:
    """Is enough given to send it? Something must be: nobody agrees to a form by not mentioning it."""
    return bool(given) and all(field.name in given or field.takes_nothing for field in question.fields)


def _content(question: FormQuestion, given: Mapping[str, Any]) -> dict[str, Any]:
    values = {
        field.name: given[field.name] if field.name in given else nothing(field) for field in question.fields
    }
    return {name: value for name, value in values.items() if value is not None}


def _unanswered(
    questions: Mapping[str, Question], given: Mapping[str, Mapping[str, Any]], *, alone: bool
) -> CliError:
    """Names what is missing, as it would be typed."""
    paths: list[str] = []
    for key, question in questions.items():
        fields = question.fields if isinstance(question, FormQuestion) else []
        needed = [field for field in fields if not field.takes_nothing] or fields
        names = [field.name for field in needed if field.name not in given.get(key, {})]
        paths += [name if alone else f"{key}.{name}" for name in names]
    first = cut(clean(next(iter(questions.values())).message.strip()), QUOTED)
    if not paths:
        return CliError(f"nobody was there to answer “{first}”", hint="call it on a terminal")
    shown = ", ".join(paths[:8]) + (", …" if len(paths) > 8 else "")
    words = " ".join(f"--answer {shlex.quote(path)}=…" for path in paths[:8])
    return CliError(f"“{first}” is not answered: {shown}", hint=f"{words}, or call it on a terminal")


# ---- the screen ------------------------------------------------------------------------------------------------------


def _begin(head: str, message: str) -> None:
    import termios

    # What was typed before the question could be read is no answer to it.
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    say()
    say(head)
    _quote(message.strip() or "(no words)")


def _quote(text: str) -> None:
    """A server's words, each line of them behind the bar."""
    bar = paint("│" if terminal.can_draw(sys.stderr) else "|", "cyan", sys.stderr)
    room = max(terminal.width(sys.stderr, otherwise=100) - 3, 10)
    kept = clean(text[:MAX_MESSAGE], keep_lines=True).replace("\t", "    ")
    lines = [piece for line in kept.split("\n") for piece in _wrapped(line, room)]
    for line in lines[:MAX_LINES]:
        say(f"{bar} {line}".rstrip())
    if len(text) > MAX_MESSAGE or len(lines) > MAX_LINES:
        say(paint(f"the rest of {len(text)} characters is not shown", "yellow", sys.stderr))


def _wrapped(line: str, room: int) -> list[str]:
    """At most `room` columns each, broken between words where there are any."""
    found: list[str] = []
    while terminal.cells(line) > room:
        end, used = 0, 0
        while (used := used + terminal.cells(line[end])) <= room:
            end += 1
        blank = line.rfind(" ", 1, end + 1)
        end = blank if blank > 0 else max(end, 1)
        found.append(line[:end])
        line = line[end:].lstrip(" ")
    return [*found, line]


def _label(field: FormField) -> str:
    return cut(clean(field.title.strip() or field.name), 80)


async def _field(field: FormField, *, bare: bool) -> Any:
    """What the person types, once it fits; None where the field is left out. EOFError: they decline."""
    description = cut(clean(field.description.strip()), 400)
    if not bare or field.title.strip() or description:
        _quote(f"{_label(field)}: {description}" if description else _label(field))
    for number, option in enumerate(field.options[:MAX_OPTIONS_SHOWN], 1):
        _quote(f"{number:3}  {cut(clean(option.title), 200)}")
    if len(field.options) > MAX_OPTIONS_SHOWN:
        say(f"and {len(field.options) - MAX_OPTIONS_SHOWN} more, which can be typed by name")
    while True:
        line = await _read(_prompt(field))
        if line is None:
            raise EOFError
        try:
            return parse(field, line, by_number=True) if line.strip() else nothing(field)
        except BadValue as error:
            say(paint(str(error), "yellow", sys.stderr))


def _prompt(field: FormField) -> str:
    if field.default is not None:
        return f"{wanted(field)} [{_shown(field, field.default)}]: "
    return f"{wanted(field)}{', optional' if field.takes_nothing else ''}: "


def _shown(field: FormField, value: Any) -> str:
    places = {option.value: str(number) for number, option in enumerate(field.options, 1)}
    match field.kind:
        case "choice":
            return places[value]
        case "choices":
            return ",".join(places[one] for one in value) or "none"
        case "boolean":
            return "yes" if value else "no"
        case _:
            return cut(clean(str(value)), QUOTED)


async def _choice(prompt: str, words: Sequence[str], *, enter: str | None) -> str | None:
    """One of the words, by its beginning. None at the end of the input."""
    while (line := await _read(prompt)) is not None:
        typed = line.strip().casefold()
        if not typed and enter is not None:
            return enter
        if found := [word for word in words if typed and word.startswith(typed)]:
            return found[0]
        say(paint(" or ".join(words), "yellow", sys.stderr))
    return None


async def agreed(prompt: str, *, enter: bool | None) -> bool:
    """Yes or no, of the person at this terminal; the end of the input is no."""
    taken = None if enter is None else "yes" if enter else "no"
    return await _choice(prompt, ("yes", "no"), enter=taken) == "yes"


def _declined() -> Mapping[str, Any]:
    say("declined")
    return DECLINED


async def _read(prompt: str) -> str | None:
    """A line of the terminal without its end; None for ctrl-d. Not in a thread: one that reads would outlive ctrl-c."""
    import trio

    file = sys.stdin.fileno()
    while True:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        data = b""
        while not data.endswith(b"\n"):
            try:
                await trio.lowlevel.wait_readable(file)
            except trio.Cancelled:
                say()  # the shell's prompt begins a line of its own
                raise
            piece = os.read(file, 4096)
            if not piece:
                break
            data = (data + piece)[-MAX_LINE:]
        if not data:
            say()
            return None
        try:
            return data.decode(sys.stdin.encoding or "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            say(paint("that cannot be read as text", "yellow", sys.stderr))
