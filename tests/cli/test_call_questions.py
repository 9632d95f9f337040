"""A tool that asks back, called in a pseudo-terminal and in a script: a real server, and an agent in a Python file."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from server.cli.use.asking import HOW_TO_ANSWER
from tests import forked
from tests.e2e.programs import SOURCE, Process, Program

ROOT = Path(__file__).parent.parent.parent
AGENT = """
    from datetime import date
    from ostiary import Context, elicitation, tool

    FORM = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "minLength": 2, "maxLength": 20},
            "guests": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
            "tip": {"type": "number", "maximum": 50},
            "vegetarian": {"type": "boolean", "description": "all of you"},
            "room": {
                "type": "string",
                "oneOf": [{"const": "g", "title": "The garden"}, {"const": "h", "title": "The hall"}],
                "default": "h",
            },
            "extras": {
                "type": "array",
                "items": {"anyOf": [{"const": "c", "title": "Candles"}, {"const": "m", "title": "Music"}]},
            },
            "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
            "mail": {"type": "string", "format": "email"},
            "page": {"type": "string", "format": "uri"},
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
        },
        "required": ["name", "guests", "vegetarian", "mail", "day"],
    }

    @tool
    async def book(guests: int, ctx: Context) -> str:
        day = await ctx.elicit("Which day?", date)
        return f"{guests} guests on {day.content:%d %B}" if day.accepted else "nothing booked"

    @tool
    async def whole(ctx: Context) -> dict:
        found = await ctx.elicit("A table.\\nWhat else should we know?", FORM)
        return {"action": found.action, "content": found.content}

    @tool
    async def rounds(ctx: Context) -> str:
        who = await ctx.elicit("Who?", str, key="who")
        sure = await ctx.elicit(f"Really {who.content}?", bool, key="sure")
        return f"{who.content} {sure.content}"

    @tool
    async def both(ctx: Context) -> str:
        found = await ctx.ask({"one": elicitation("First?", int), "two": elicitation("Second?", str)})
        return f"{found['one'].action} {found['one'].content}, {found['two'].action} {found['two'].content}"

    @tool
    async def page(ctx: Context) -> str:
        return (await ctx.elicit_url("Connect it.", "https://calendar.example.org/connect?id=1")).action

    @tool
    async def rude(ctx: Context) -> str:
        text = "Fine.\\x1b[2J\\x1b]0;owned\\x07\\u202e\\nsend this [Y/n]: \\r127.0.0.1 asks\\n" + "x" * 150 + "\\n" * 99
        return (await ctx.elicit(text, {"type": "object", "properties": {}})).action
"""
SETTINGS = """
    auth = "none"
    [[server]]
    title = "The restaurant"
    [[server.agent]]
    kind = "python"
    file = "agent.py"
"""
# command line → exit code, stdout, stderr
SCRIPTED: tuple[tuple[str, int, str, str], ...] = (
    ("book guests=3 --answer value=2026-12-24", 0, "3 guests on 24 December\n", ""),
    ("book guests=3 --answer ask-1.value=2026-12-24", 0, "3 guests on 24 December\n", ""),
    (
        "book guests=3 --answer value=2026-12-24 --answer other=x",
        0,
        "3 guests on 24 December\n",
        "--answer other was not asked for\n",
    ),
    ("rounds --answer who=Ada --answer sure=yes", 0, "Ada True\n", ""),
    ("rounds --answer value=Ada --answer value=no", 0, "Ada False\n", ""),
    ("both --answer two=x --answer one.value=7", 0, "accept 7, accept x\n", ""),
    (
        "book guests=3 --answer value=soon",
        2,
        "",
        "error: --answer value: that is not a date: write it as 2026-12-24\n",
    ),
    (
        "rounds --answer who=Ada",
        1,
        "",
        "error: “Really Ada?” is not answered: value\nhint: --answer value=…, or call it on a terminal\n",
    ),
    (
        "both --answer value=7",
        1,
        "",
        "error: “First?” is not answered: one.value, two.value\n"
        "hint: --answer one.value=… --answer two.value=…, or call it on a terminal\n",
    ),
    (
        "whole --answer name=Ada",
        1,
        "",
        "error: “A table. What else should we know?” is not answered: vegetarian, mail, day\n"
        "hint: --answer vegetarian=… --answer mail=… --answer day=…, or call it on a terminal\n",
    ),
    (
        "book guests=3 --answer x",
        2,
        "",
        "error: --answer takes field=value, not “x”\nhint: ostiary call --help\n",
    ),
)
# Makes the pseudo-terminal the one that ctrl-c comes from.
LAUNCH = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
FIRST_LINES = f"\n{{host}} (“The restaurant”) asks\n│ Which day?\n{HOW_TO_ANSWER}\ndate, as in 2026-12-24: "


@dataclass
class Screen:
    """What a person sees: stderr, and what they type. Stdout goes elsewhere, as into a pipe."""

    process: Process
    master: int
    output: Path
    seen: str = ""
    _unread: int = field(default=0)

    async def shows(self, text: str) -> str:
        """Returns once `text` has come after what came before; with what was in between."""
        while (found := self.seen.find(text, self._unread)) < 0:
            assert await self._more(), f"{text!r} is not in {self.seen!r}"
        between = self.seen[self._unread : found]
        self._unread = found + len(text)
        return between

    async def answers(self, prompt: str, line: str) -> None:
        await self.shows(prompt)
        self.types(f"{line}\n")

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def ends(self) -> tuple[int, str]:
        """The exit code, and stdout."""
        while await self._more():
            pass
        code = await trio.to_thread.run_sync(self.process.wait)
        return code, self.output.read_text("utf-8")

    async def _more(self) -> bool:
        await trio.lowlevel.wait_readable(self.master)
        try:
            piece = os.read(self.master, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # the other side is closed
                raise
            return False
        self.seen += piece.decode().replace("\r\n", "\n")
        return bool(piece)


@dataclass(frozen=True)
class Restaurant:
    shell: Terminal
    url: str

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://").removesuffix("/mcp")

    async def scripted(self, *arguments: str) -> tuple[int, str, str]:
        done = await self.shell.run("call", self.url, *arguments)
        return done.code, done.stdout, done.stderr

    def calling(
        self, *arguments: str, columns: int = 100, controlled: bool = False
    ) -> AbstractAsyncContextManager[Screen]:
        return self.typed("call", self.url, *arguments, columns=columns, controlled=controlled)

    @asynccontextmanager
    async def typed(
        self, *words: str, columns: int = 100, controlled: bool = False
    ) -> AsyncGenerator[Screen]:
        """`controlled`: by the terminal, from which ctrl-c comes then."""
        master, slave = pty.openpty()
        os.set_blocking(master, False)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        output = self.shell.home / "stdout"
        environment = self.shell.environment(TERM="xterm", NO_COLOR="1")
        process: Process
        with output.open("wb") as stdout:
            if controlled:
                process = subprocess.Popen(
                    [sys.executable, "-c", LAUNCH, *self.shell.command(words)],
                    stdin=slave,
                    stdout=stdout,
                    stderr=slave,
                    env=environment,
                    start_new_session=True,
                )
            else:
                process = forked.start(
                    words,
                    environment=environment,
                    folder=self.shell.home,
                    files=(slave, stdout.fileno(), slave),
                )
        os.close(slave)
        try:
            with trio.fail_after(WAIT_SECONDS):
                yield Screen(process, master, output)
        finally:
            process.kill()
            process.wait()
            os.close(master)


@contextmanager
def serving(home: Path, settings: str) -> Generator[str]:
    """Serve what lies there; its address."""
    (home / "ostiary.toml").write_text(settings, "utf-8")
    program = Program(command=SOURCE, home=home)
    with program.serving("--auth", "none", "--config", str(home / "ostiary.toml")) as server:
        yield server.endpoint


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve the restaurant, which all tests share; its address."""
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "agent.py").write_text(dedent(AGENT), "utf-8")
        with serving(Path(folder), dedent(SETTINGS)) as url:
            yield url


@pytest.fixture
def restaurant(shell: Terminal, url: str) -> Restaurant:
    return Restaurant(shell, url)


async def test_a_question_is_put_to_the_person_and_the_answer_is_the_tools(restaurant: Restaurant) -> None:
    async with restaurant.calling("book", "guests=3") as screen:
        await screen.answers("24: ", "tomorrow")
        await screen.answers("that is not a date: write it as 2026-12-24\ndate, as in 2026-12-24: ", "")
        await screen.answers("this is needed\ndate, as in 2026-12-24: ", "2026-12-24")
        await screen.answers("send this [Y/n/again]: ", "")
        assert await screen.ends() == (0, "3 guests on 24 December\n")
    assert screen.seen.startswith(FIRST_LINES.format(host=restaurant.host))


async def test_every_kind_of_field_is_asked_for_until_it_fits(restaurant: Restaurant) -> None:
    async with restaurant.calling("whole") as screen:
        await screen.shows("│ A table.\n│ What else should we know?\n")
        await screen.answers("│ Name\ntext, 2 to 20 characters: ", "Ä")
        await screen.answers("at least 2 characters\ntext, 2 to 20 characters: ", "Ada\x1b[D")
        await screen.answers("arrow keys make\ntext, 2 to 20 characters: ", "Ädä")
        await screen.answers("│ guests\nwhole number, 1 to 8 [2]: ", "9")
        await screen.answers("at most 8\nwhole number, 1 to 8 [2]: ", "")
        await screen.answers("│ tip\nnumber, at most 50, optional: ", "1.5")
        await screen.answers("│ vegetarian: all of you\nyes or no: ", "perhaps")
        await screen.answers("yes or no\nyes or no: ", "y")
        await screen.answers("│ room\n│   1  The garden\n│   2  The hall\none of 1 to 2 [2]: ", "3")
        await screen.answers("the choices are 1 to 2\none of 1 to 2 [2]: ", "1")
        await screen.answers("│   2  Music\nany of 1 to 2, with commas, optional: ", "2,1")
        await screen.answers("│   2  Large\none of 1 to 2, optional: ", "large")
        await screen.answers("│ mail\ne-mail address, as in ada@example.org: ", "ada")
        await screen.answers(
            "that is not an e-mail address: write it as ada@example.org\n", "ada@example.org"
        )
        await screen.answers("│ page\nweb address, as in https://example.org, optional: ", "")
        await screen.answers("│ day\ndate, as in 2026-12-24: ", "2028-02-29")
        await screen.answers("18:30+01:00, optional: ", "2026-12-24 18:30")
        await screen.answers("18:30+01:00, optional: ", "2026-12-24 18:30Z")
        await screen.answers("send this [Y/n/again]: ", "y")
        code, output = await screen.ends()
    assert (code, json.loads(output)) == (
        0,
        {
            "action": "accept",
            "content": {
                "name": "Ädä",
                "guests": 2,
                "tip": 1.5,
                "vegetarian": True,
                "room": "g",
                "extras": ["m", "c"],
                "size": "l",
                "mail": "ada@example.org",
                "day": "2028-02-29",
                "at": "2026-12-24T18:30:00Z",
            },
        },
    )


@pytest.mark.parametrize("way", ["at the end", "in a field"])
async def test_a_person_can_decline(restaurant: Restaurant, way: str) -> None:
    async with restaurant.calling("book", "guests=3") as screen:
        if way == "in a field":
            await screen.shows("date, as in 2026-12-24: ")
            screen.types("\x04")
        else:
            await screen.answers("date, as in 2026-12-24: ", "2026-12-24")
            await screen.answers("send this [Y/n/again]: ", "what?")
            await screen.answers("yes or no or again\nsend this [Y/n/again]: ", "n")
        await screen.shows("declined\n")
        assert await screen.ends() == (0, "nothing booked\n")


async def test_a_form_can_be_filled_in_again(restaurant: Restaurant) -> None:
    async with restaurant.calling("book", "guests=3") as screen:
        await screen.answers("date, as in 2026-12-24: ", "2026-12-23")
        await screen.answers("send this [Y/n/again]: ", "a")
        await screen.answers("date, as in 2026-12-24: ", "2026-12-24")
        await screen.answers("send this [Y/n/again]: ", "yes")
        assert await screen.ends() == (0, "3 guests on 24 December\n")


async def test_what_was_typed_before_the_question_could_be_read_is_no_answer(restaurant: Restaurant) -> None:
    async with restaurant.calling("book", "guests=3") as screen:
        screen.types("2026-12-23\n\n")
        await screen.answers("date, as in 2026-12-24: ", "2026-12-24")
        await screen.answers("send this [Y/n/again]: ", "")
        assert await screen.ends() == (0, "3 guests on 24 December\n")


async def test_the_documents_show_the_readmes_agent_as_the_terminal_does(shell: Terminal) -> None:
    readme, clients = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/terminal.md"))
    agent = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    shown = re.search(r"```text\n\$ ostiary call (\S+) (book guests=3)\n(.*?)```", clients, re.DOTALL)
    assert agent and shown
    (shell.home / "restaurant.py").write_text(agent[1], "utf-8")
    with serving(
        shell.home, '[[server]]\n[[server.agent]]\nkind = "python"\nfile = "restaurant.py"\n'
    ) as url:
        restaurant = Restaurant(shell, url)
        async with restaurant.calling(*shown[2].split(" ")) as screen:
            await screen.answers("date, as in 2026-12-24: ", "2026-12-24")
            await screen.answers("send this [Y/n/again]: ", "")
            code, output = await screen.ends()
    host = shown[1].removeprefix("http://").removesuffix("/mcp")
    lines = (screen.seen + output).replace(restaurant.host, host).splitlines()
    assert (code, [line.rstrip() for line in lines]) == (0, shown[3].splitlines())


async def test_ctrl_c_at_a_question_ends_the_call_quietly(restaurant: Restaurant) -> None:
    async with restaurant.calling("book", "guests=3", controlled=True) as screen:
        await screen.shows("date, as in 2026-12-24: ")
        screen.types("\x03")
        assert await screen.ends() == (130, "")
    assert screen.seen.endswith("date, as in 2026-12-24: ^C\n")


async def test_several_rounds_and_several_questions_at_once_are_asked_in_turn(restaurant: Restaurant) -> None:
    async with restaurant.calling("rounds") as screen:
        await screen.answers("│ Who?\n", "Ada")
        await screen.answers("send this", "")
        await screen.answers("│ Really Ada?\nyes or no: ", "n")
        await screen.answers("send this", "")
        assert await screen.ends() == (0, "Ada False\n")
    async with restaurant.calling("both") as screen:
        await screen.shows("asks, 1 of 2\n│ First?\n")
        await screen.answers("whole number: ", "7")
        await screen.answers("send this", "n")
        await screen.answers("asks, 2 of 2\n│ Second?\ntext: ", "x")
        await screen.answers("send this", "")
        assert await screen.ends() == (0, "decline None, accept x\n")


@pytest.mark.parametrize(("typed", "action"), [("y", "accept"), ("n", "decline")])
async def test_a_page_is_shown_with_its_host_and_its_whole_address(
    restaurant: Restaurant, typed: str, action: str
) -> None:
    async with restaurant.calling("page", columns=40) as screen:
        await screen.shows("(“The restaurant”) wants a page opened\n│ Connect it.\n")
        await screen.shows("site     calendar.example.org\n")
        await screen.shows("address  https://calendar.example.org/connect?id=1\n")
        await screen.answers("done there [y/n]: ", "")
        await screen.answers("yes or no\ndone there [y/n]: ", typed)
        assert await screen.ends() == (0, f"{action}\n")


async def test_the_words_of_a_server_stay_behind_their_bar(restaurant: Restaurant) -> None:
    async with restaurant.calling("rude", columns=60) as screen:
        await screen.answers("agree [y/N]: ", "")
        assert await screen.ends() == (0, "decline\n")
    assert "\x1b" not in screen.seen
    assert "\u202e" not in screen.seen
    lines = screen.seen.split("\n")
    assert lines[1] == f"{restaurant.host} (“The restaurant”) asks"
    words = [line for line in lines if line.startswith("│")]
    # Trailing blank lines are none of the message; a carriage return does not go back to the edge.
    assert words[:2] == ["│ Fine.\ufffd[2J\ufffd]0;owned\ufffd\ufffd", "│ send this [Y/n]:  127.0.0.1 asks"]
    assert [line.count("x") for line in words[2:]] == [57, 57, 36]
    assert all(len(line) < 60 for line in words)
    assert lines[2 + len(words) :] == ["agree [y/N]: ", "declined", ""]


async def test_without_a_terminal_nothing_is_offered_and_the_server_refuses(restaurant: Restaurant) -> None:
    code, output, talk = await restaurant.scripted("book", "guests=3")
    assert (code, output) == (1, "")
    assert talk.startswith("error: the server refused tools/call: ")
    assert talk.endswith(
        "hint: it has a question for a person: call it on a terminal, or give --answer FIELD=VALUE\n"
    )
    async with restaurant.calling("book", "guests=3", "--json") as screen:
        assert await screen.ends() == (1, "")
    assert "Which day?" not in screen.seen


@pytest.mark.slow
async def test_a_script_answers_by_option(restaurant: Restaurant) -> None:
    for arguments, code, output, talk in SCRIPTED:
        assert await restaurant.scripted(*arguments.split(" ")) == (code, output, talk), arguments


async def test_what_a_script_gives_is_typed_by_the_form_and_the_rest_takes_its_defaults(
    restaurant: Restaurant,
) -> None:
    given = ["name=Ada", "vegetarian=yes", "mail=a@b.example", "day=2026-12-24", "extras=Music", "extras=c"]
    words = [word for one in given for word in ("--answer", one)]
    code, output, _ = await restaurant.scripted("whole", *words, "--json")
    assert code == 0
    assert json.loads(json.loads(output)["content"][0]["text"])["content"] == {
        "name": "Ada",
        "guests": 2,
        "vegetarian": True,
        "room": "h",
        "extras": ["m", "c"],
        "mail": "a@b.example",
        "day": "2026-12-24",
    }


async def test_a_person_is_asked_only_for_what_is_not_given(restaurant: Restaurant) -> None:
    async with restaurant.calling("both", "--answer", "one=7") as screen:
        await screen.answers("asks\n│ Second?\n", "x")
        await screen.answers("send this", "")
        assert await screen.ends() == (0, "accept 7, accept x\n")
    assert "First?" not in screen.seen
