"""Programs that are printed to be run: whatever a server calls its tools, nothing of it is more than a literal or a comment."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from server.client.samples.sample_programs import (
    PROGRAMS,
    SampleCall,
    comment,
    curl,
    python,
    shell_word,
    typescript,
)

NODE = Path(__file__).parents[2] / "peers" / "node_modules" / ".bin" / "node"

HOSTILE = [
    "'; touch owned; '",
    '"; touch owned; "',
    "$(touch owned)",
    "`touch owned`",
    "\n touch owned\n",
    "\r touch owned",
    '"""\nimport os; os.abort()\n"""',
    "\\",
    "\\'",
    "*/ process.abort() /*",
    "${process.abort()}",
    "\u2028process.abort()\u2029",
    "</script>",
    "\x1b[2J",
    "\0",
    "__proto__",
    "@/etc/passwd",
    "ünïcödé",
    "",
]


def call(text: str, **changes: Any) -> SampleCall:
    return SampleCall(
        url="http://127.0.0.1:8420/mcp",
        tool={
            "name": text or "x",
            "description": text,
            "inputSchema": {"properties": {"a": {"x-mcp-header": "City"}}},
        },
        arguments={text: text, "a": text, "nested": {"list": [text, 1, 2.5, None, True, {}, []]}},
        **changes,
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_tool_gets_out_of_its_quotes_in_a_shell(text: str, tmp_path: Any) -> None:
    script = curl(call(text))
    assert script.isascii()
    # A `curl` of our own, which says what it was given.
    fake = tmp_path / "curl"
    fake.write_text('#!/bin/sh\ncat >/dev/null\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    fake.chmod(0o700)
    done = subprocess.run(
        ["sh"],
        input=script.encode(),
        capture_output=True,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "OSTIARY_TOKEN": "t"},
        check=True,
    )
    assert (done.stderr, sorted(path.name for path in tmp_path.iterdir())) == (b"", ["curl"])
    words = done.stdout.decode("ascii").split("\0")[:-1]
    sent = json.loads(words[words.index("--data-binary") + 1])
    assert sent["params"]["arguments"] == {
        text: text,
        "a": text,
        "nested": {"list": [text, 1, 2.5, None, True, {}, []]},
    }
    assert sent["params"]["name"] == (text or "x")
    assert "OSTIARY_TOKEN" not in done.stdout.decode()
    assert not any("Bearer" in word for word in words)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_tool_gets_out_of_its_quotes_in_python(text: str) -> None:
    tree = ast.parse(python(call(text)))
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["TOOL"] == (text or "x")
    assert values["ARGUMENTS"] == dict(call(text).arguments)
    plain = ast.parse(python(call("x")))
    assert [type(node) for node in tree.body] == [type(node) for node in plain.body]


@pytest.mark.peers
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_tool_gets_out_of_its_quotes_in_typescript(text: str, tmp_path: Any) -> None:
    script = typescript(call(text))
    assert script.isascii()
    literals = [line for line in script.splitlines() if not line.startswith(("//", "import"))]
    end = next(place for place, line in enumerate(literals) if line.startswith("const transport"))
    (tmp_path / "a.mjs").write_text(
        "\n".join(literals[:end]) + "\nconsole.log(JSON.stringify({ url, tool, args }));\n"
    )
    done = subprocess.run([NODE, str(tmp_path / "a.mjs")], capture_output=True, cwd=tmp_path, check=True)
    found = json.loads(done.stdout)
    assert found["tool"] == (text or "x")
    assert found["args"] == dict(call(text).arguments)


@pytest.mark.parametrize("language", sorted(PROGRAMS))
def test_no_program_has_a_token_and_one_without_a_login_asks_for_none(language: Any) -> None:
    assert "OSTIARY_TOKEN" in PROGRAMS[language](call("x"))
    assert "OSTIARY_TOKEN" not in PROGRAMS[language](call("x", with_token=False))


def test_a_comment_is_one_line_and_bounded() -> None:
    assert comment("a\n\n  b\tc") == "a b c"
    assert len(comment("x" * 5000)) == 100
    assert comment("\u202egnirts") == "gnirts"


def test_a_word_of_a_shell_is_one_word() -> None:
    assert shell_word("it's") == "'it'\\''s'"
    assert shell_word("") == "''"
