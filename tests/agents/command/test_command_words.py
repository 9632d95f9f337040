"""What a call's arguments come to on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from server.agents.command.command_words import WORD_BYTES, ArgvTemplate, UnfitArgument


def filled(run: list[Any], allow_dashes: bool = False, **values: Any) -> list[str]:
    words = ArgvTemplate(run, allow_dashes=allow_dashes).filled("/bin/weather", values)
    return [word.decode() if isinstance(word, bytes) else word for word in words]


@pytest.mark.parametrize(
    ("run", "values", "words"),
    [
        (["weather", "{city}"], {"city": "Bad Homburg; rm -rf ~"}, ["Bad Homburg; rm -rf ~"]),
        (["weather", "--city={city}"], {"city": "$(id)\n'\""}, ["--city=$(id)\n'\""]),
        (["weather", "{a}{b}-{a}"], {"a": "1", "b": "{a}"}, ["1{a}-1"]),
        (["weather", "{{{a}}}", "}}"], {"a": "x"}, ["{x}", "}"]),
        (["weather", "{n}", "{b}"], {"n": 3.5, "b": True}, ["3.5", "true"]),
        (["weather", "{list}"], {"list": ["a b", "c"]}, ['["a b","c"]']),
        (["weather", ["--days", "{days}"], "{city}"], {"city": "B", "days": 2}, ["--days", "2", "B"]),
        (["weather", ["--days", "{days}"], "{city}"], {"city": "B"}, ["B"]),
        (["weather", ["{city}"]], {"city": None}, []),
        (["weather", ""], {}, [""]),
    ],
)
def test_each_word_stays_one_word(run: list[Any], values: dict[str, Any], words: list[str]) -> None:
    assert filled(run, **values) == ["/bin/weather", *words]


def test_what_looks_like_an_option_is_refused_unless_its_author_guards_against_it() -> None:
    with pytest.raises(UnfitArgument, match=r"^city: must not begin with a dash$"):
        filled(["weather", "{city}"], city="--help")
    with pytest.raises(UnfitArgument, match=r"^n: must not"):
        filled(["weather", ["-n", "{n}"]], n=-1)
    assert filled(["weather", "--", "{city}"], city="--help")[2:] == ["--help"]
    assert filled(["weather", "{city}"], allow_dashes=True, city="-1")[1:] == ["-1"]
    assert filled(["weather", "--city={city}"], city="-1")[1:] == ["--city=-1"]


def test_a_guard_that_is_an_argument_is_none() -> None:
    with pytest.raises(UnfitArgument):
        filled(["weather", "{a}", "{b}"], a="--", b="--help")


def test_what_is_no_word_is_refused_by_its_name() -> None:
    for city, why in (("a\0b", "zero byte"), ("\ud800", "whole text"), ("x" * (WORD_BYTES + 1), "too long")):
        with pytest.raises(UnfitArgument, match=f"^city: .*{why}"):
            filled(["weather", "{city}"], city=city)
    with pytest.raises(UnfitArgument, match="too long together"):
        filled(["weather", *["{city}"] * 10], city="x" * WORD_BYTES)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ([], "is missing"),
        ([["weather"]], "is missing"),
        (["{program}"], "choose the program"),
        (["a/{program}"], "choose the program"),
        (["weather", []], "empty list"),
        (["weather", "a\0"], "zero byte"),
        (["weather", "{"], "lone brace"),
        (["weather", "{a b}"], "lone brace"),
        (["awk", "}"], "lone brace"),
        (["sh", "-c", "curl {url}"], "write what is run"),
        (["/usr/bin/env", "bash", "-euo", "pipefail", "-c", "{code}"], "write what is run"),
        (["python3.12", "-X", "utf8", "-c", "print({n})"], "write what is run"),
        (["node", "--eval", "{code}"], "write what is run"),
        (["perl", ["-ne", "{code}"]], "write what is run"),
        (["busybox", "sh", "-c", "{x}"], "write what is run"),
        (["busybox", "{x}"], "choose the program"),
        (["busybox", "awk", "{x}"], "write what is run"),
        (["node", "--eval={x}"], "write what is run"),
        (["node", "--{x}"], "write what is run"),
        (["node", "-e", "1", "-e", "{x}"], "write what is run"),
        (["perl", "-e{x}"], "write what is run"),
        (["perl", "-0777ne{x}"], "write what is run"),
        (["perl", "-M{x}", "-e", "1"], "write what is run"),
        (["python3", "-{x}"], "write what is run"),
        (["bash", "-c", "--", "{x}"], "write what is run"),
        (["bash", "-c", "-e", "{x}"], "write what is run"),
        (["bash", "-c{x}", "id"], "write what is run"),
        (["fish", "--init-command={x}"], "write what is run"),
        (["pwsh", "-NoProfile", "-Command", "Get-Item {x}"], "write what is run"),
        (["pwsh", "-c", "Get-Item", "{x}"], "write what is run"),
        (["deno", "eval", "{x}"], "write what is run"),
        (["env", "-S", "{x}"], "write what is run"),
        (["env", "-S{x}"], "write what is run"),
        (["env", "--split-string={x}"], "write what is run"),
        (["env", "-S", "sh -c", "{x}"], "write what is run"),
        (["env", "A=b", "{x}"], "choose the program"),
        (["ssh", "host", "{x}"], "write what is run"),
        (["ssh", "-p", "22", "{host}", "ls", "{x}"], "write what is run"),
        (["ssh", "-o", "ProxyCommand={x}", "host"], "write what is run"),
        (["awk", "{x}"], "write what is run"),
        (["gawk", "-F", ",", "NR == {x}", "file"], "write what is run"),
        (["mawk", "--", "{x}"], "write what is run"),
        (["su", "-c", "{x}"], "write what is run"),
        (["su", "-", "user", "--command={x}"], "write what is run"),
        (["nohup", "{x}"], "choose the program"),
        (["timeout", "-k", "5", "10", "{x}"], "choose the program"),
        (["timeout", "10", "nice", "-n", "5", "sh", "-c", "{x}"], "write what is run"),
        (["sudo", "-u", "www", "awk", "{x}"], "write what is run"),
        (["xargs", "-n1", "{x}"], "choose the program"),
        (["xargs", "-I", "{{}}", "sh", "-c", "{x}"], "write what is run"),
        (["find", "{dir}", "-exec", "{x}", ";"], "choose the program"),
        (["find", ".", "-execdir", "sh", "-c", "{x}", ";"], "write what is run"),
        (["flock", "/tmp/lock", "-c", "{x}"], "write what is run"),
        (["watch", "-n", "2", "{x}"], "write what is run"),
        (["bash", ["{file}"], "-c", "{x}"], "write what is run"),
        (["docker", "exec", "box", "sh", "-c", "{x}"], "write what is run"),
        (["sed", "{x}"], "write what is run"),
        (["sed", "-n", "{x}p", "file"], "write what is run"),
        (["sed", "-i.bak", "-e", "{x}", "file"], "write what is run"),
        (["sed", "--expression={x}", "file"], "write what is run"),
        (["psql", "-d", "db", "-c", "{x}"], "write what is run"),
        (["psql", "db", "--command={x}"], "write what is run"),
        (["mysql", "-e", "{x}"], "write what is run"),
        (["sqlite3", "-readonly", "db", "{x}"], "write what is run"),
        (["vim", "-es", "-c", "{x}", "file"], "write what is run"),
        (["vim", "+{x}", "file"], "write what is run"),
        (["git", "-c", "{x}", "log"], "write what is run"),
        (["git", "-C", "dir", "-c", "alias.x={x}", "x"], "write what is run"),
        (["env", "LD_PRELOAD={x}", "tool"], "write what is run"),
        (["env", "A=b", "PATH={x}:/bin", "tool"], "write what is run"),
        (["sudo", "GIT_SSH_COMMAND={x}", "git", "fetch"], "write what is run"),
        (["npx", "{x}"], "choose the program"),
        (["npx", "-y", "{x}"], "choose the program"),
        (["npx", "-p", "{x}", "tool"], "choose the program"),
        (["npx", "--package={x}", "tool"], "choose the program"),
        (["npx", "--registry", "r", "{x}"], "choose the program"),
        (["npx", "-c", "{x}"], "write what is run"),
        (["npx", "-y", "tsx", "-e", "{x}"], "write what is run"),
        (["npm", "exec", "--", "{x}"], "choose the program"),
        (["pnpm", "dlx", "{x}"], "choose the program"),
        (["bun", "x", "{x}"], "write what is run"),
        (["uvx", "{x}"], "choose the program"),
        (["uvx", "--from", "{x}", "tool"], "choose the program"),
        (["uvx", "--python", "3.12", "--from", "a", "{x}"], "choose the program"),
        (["uv", "--directory", "dir", "run", "{x}"], "choose the program"),
        (["uv", "run", "-m", "{x}"], "choose the program"),
        (["uv", "tool", "run", "{x}"], "choose the program"),
        (["uv", "run", "awk", "{x}"], "write what is run"),
        (["poetry", "run", "{x}"], "choose the program"),
        (["python3", "-m", "{x}"], "choose the program"),
        (["docker", "run", "--rm", "{x}"], "choose the program"),
        (["docker", "run", "-it", "--name", "a", "image", "{x}"], "choose the program"),
        (["docker", "run", "--entrypoint", "{x}", "image"], "choose the program"),
        (["docker", "run", "--entrypoint", "tool", "{x}"], "choose the program"),
        (["docker", "run", "--entrypoint=awk", "--rm", "image", "{x}"], "write what is run"),
        (["docker", "exec", "-e", "A=b", "box", "{x}"], "choose the program"),
        (["docker", "--context", "c", "exec", "{box}", "awk", "{x}"], "write what is run"),
        (["kubectl", "-n", "a", "exec", "pod", "-c", "b", "--", "{x}"], "choose the program"),
        (["nsenter", "-t", "1", "{x}"], "choose the program"),
        (["bash5", "-c", "{x}"], "write what is run"),
    ],
)
def test_a_command_that_nobody_should_be_given_is_refused(run: list[Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ArgvTemplate(run)


@pytest.mark.parametrize(
    "run",
    [
        ["sh", "-c", 'curl -- "$1"', "sh", "{url}"],
        ["python3", "tool.py", "-c", "{city}"],
        ["jq", "-c", "{filter}"],
        ["env", "LANG={lang}", "python3", "tool.py", "{x}"],
        ["env", "-S", "python3 -u", "tool.py", "{x}"],
        ["timeout", "{n}", "tool", "{x}"],
        ["timeout", "--signal=KILL", "10", "tool", "-c", "{x}"],
        ["nice", "-n", "{n}", "tool"],
        ["sudo", "-u", "{user}", "tool", "{x}"],
        ["python3", "-m", "tool", "-c", "{x}"],
        ["python3", "-X", "utf8", "tool.py", "-e", "{x}"],
        ["perl", "-MJSON", "-ne", "print if /x/", "{file}"],
        ["node", "--require", "./a.js", "tool.js", "--eval", "{x}"],
        ["ssh", "-p", "22", "{host}", "uptime"],
        ["awk", "-v", "n={n}", "NR == n", "{file}"],
        ["awk", "-F{sep}", "-f", "tool.awk", "{file}"],
        ["find", "{dir}", "-name", "{name}"],
        ["find", ".", "-exec", "grep", "-e", "{x}", "{{}}", "+"],
        ["pwsh", "-NoProfile", "-File", "tool.ps1", "-c", "{x}"],
        ["tool", "env", "{x}"],
        ["git", "log", "--author={x}"],
        ["git", "-C", "{dir}", "switch", "-c", "{branch}"],
        ["sed", "-n", "-e", "s/a/b/p", "{file}"],
        ["sed", "s/a/b/", "{file}"],
        ["sed", "-f", "tool.sed", "{file}"],
        ["psql", "-d", "{db}", "-f", "query.sql", "-v", "x={x}"],
        ["npx", "-y", "@acme/notes@1", "{x}"],
        ["npx", "-p", "@acme/notes", "notes", "-c", "{x}"],
        ["npm", "view", "{package}"],
        ["uvx", "--from", "notes[cli]", "notes", "{x}"],
        ["uv", "run", "--with", "rich", "tool.py", "{x}"],
        ["uv", "pip", "show", "{package}"],
        ["docker", "logs", "--tail", "{n}", "{box}"],
        ["docker", "tag", "a", "{tag}"],
        ["docker", "exec", "-u", "{user}", "{box}", "cat", "{file}"],
        ["docker", "run", "--rm", "-e", "A={x}", "image", "cat", "{file}"],
        ["docker", "run", "--entrypoint", "tool", "--rm", "image", "{x}"],
        ["kubectl", "get", "pod", "{pod}"],
        ["kubectl", "exec", "{pod}", "-n", "{space}", "--", "cat", "{file}"],
        ["vim", "-es", "-c", "wq", "{file}"],
        ["bash", "--", "{file}"],
    ],
)
def test_code_that_takes_what_it_is_given_is_its_authors(run: list[Any]) -> None:
    assert ArgvTemplate(run).program == run[0]


@pytest.mark.parametrize("run", [["bash", "{file}"], ["python3", "-u", "{file}"], ["ssh", "{host}", "ls"]])
def test_a_value_that_may_begin_with_a_dash_is_no_option_of_an_interpreter(run: list[str]) -> None:
    assert ArgvTemplate(run).program == run[0]
    with pytest.raises(ValueError, match="write what is run"):
        ArgvTemplate(run, allow_dashes=True)


@pytest.mark.parametrize(
    "run",
    [
        ["sh"],
        ["bash", "-s", "--"],
        ["python3", "-"],
        ["env", "perl"],
        ["ssh", "host"],
        ["xargs", "sh", "-c"],
        ["psql"],
        ["sqlite3", "db"],
    ],
)
def test_an_interpreter_does_not_read_its_code_from_a_caller(run: list[str]) -> None:
    assert ArgvTemplate(run).program == run[0]  # what it reads is its author's
    with pytest.raises(ValueError, match="write what is run"):
        ArgvTemplate(run, fed=True)


@pytest.mark.parametrize(
    "run",
    [
        ["sh", "-c", "cat"],
        ["python3", "tool.py"],
        ["python3", "-m", "json.tool"],
        ["perl", "-pe", "s/a/b/"],
        ["awk", "{{print}}"],
        ["awk", "-f", "tool.awk"],
        ["ssh", "host", "cat"],
        ["which", "sh"],
        ["sed", "s/a/b/"],
        ["git", "hash-object", "--stdin"],
        ["docker", "exec", "-i", "box", "cat"],
        ["psql", "-c", "copy a from stdin"],
    ],
)
def test_code_that_reads_what_a_caller_says_is_its_authors(run: list[str]) -> None:
    assert ArgvTemplate(run, fed=True).program == run[0]
