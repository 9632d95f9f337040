"""Words in which a file of functions that cannot be served is refused: whole, in tests/snapshots."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Final

import pytest
from test_shim_loading import BROKEN, OTHERS

from tests.snapshots import Snapshot

# Besides those of test_shim_loading.py: what stands below the imports.
MORE: Final = {
    "a misspelt annotation": "@tool(annotations={'readonly': True})\ndef f(): ...",
    "an annotation that nobody knows": "@tool(annotations={'zzz': True})\ndef f(): ...",
    "an annotation of another kind": "@tool(annotations={'destructive': 'no'})\ndef f(): ...",
    "a deadline that is over": "@tool(deadline=0)\ndef f(): ...",
    "an own schema without a parameter": (
        "@tool(input_schema={'type': 'object', 'additionalProperties': False})\ndef f(a, b): ..."
    ),
    "two contexts": "@tool\ndef f(a: Context, b: Context): ...",
    "a param as a default": "@tool\ndef f(a: int = Param()): ...",
    "what is provided as a default": "@tool\ndef f(a: int = Provide(len)): ...",
    "what nobody fills": "def g(b): ...\n@tool\ndef f(a: Annotated[int, Provide(g)]): ...",
    "a header with blanks": "@tool\ndef f(a: Annotated[int, Param(header='a b')]): ...",
    "a header of another kind": "@tool\ndef f(a: Annotated[list, Param(header='a')]): ...",
    "two prompts": "@prompt\ndef f(): ...\n@prompt\ndef f(): ...",
    "two resources": "@resource('a://b')\ndef f(): ...\n@resource('a://b')\ndef g(): ...",
    "two completions": "@prompt\ndef f(a): ...\n@completion('f', 'a')\ndef g(value): ...\n@completion('f', 'a')\ndef h(value): ...",
    "a completion of another argument": "@prompt\ndef f(a): ...\n@completion('f', 'b')\ndef g(value): ...",
    "a completion that takes more": "@prompt\ndef f(a): ...\n@completion('f', 'a')\ndef g(value, more): ...",
    "a lifespan that takes something": "@lifespan\ndef g(a): ...\n@tool\ndef f(): ...",
    "two lifespans": "@lifespan\ndef g(): yield\n@lifespan\ndef h(): yield\n@tool\ndef f(): ...",
    "a class around calls": "@around\nclass A: ...\n@tool\ndef f(): ...",
    "what cannot wait, around calls": "@around\ndef g(call, proceed): ...\n@tool\ndef f(): ...",
    "a price in floats": "@tool(price=0.01)\ndef f(): ...",
    "a price in words": "@tool(price='1 cent')\ndef f(): ...",
    "a price below zero": "@tool(price=-1)\ndef f(): ...",
    "a price that is none": "@tool(price=[])\ndef f(): ...",
    "two prices": "@tool(price='$1', meta={'io.ostiary/price': '$2'})\ndef f(): ...",
    "a price of nothing": "@tool\ndef f(): ...\n@price('g')\ndef p(): ...",
    "a price besides": "@tool(price='$1')\ndef f(): ...\n@price('f')\ndef p(): ...",
    "two price functions": "@tool\ndef f(): ...\n@price('f')\ndef p(): ...\n@price('f')\ndef q(): ...",
    "two price functions of a name": "@tool\ndef f(): ...\n@price\ndef p(): ...\n@price\ndef p(): ...",
    "a price of several": "@tool\ndef f(): ...\n@price('f')\ndef p(): yield 1",
}  # fmt: skip
IMPORTS: Final = """from typing import Annotated
from ostiary import Context, Param, Provide, around, completion, lifespan, price, prompt, resource, tool
"""


@pytest.mark.usefixtures("library")
def test_what_is_said_of_files_that_cannot_be_served(tmp_path: Path, snapshot: Snapshot) -> None:
    files = {name: text for name, (text, _) in BROKEN.items()} | {
        name: IMPORTS + text for name, text in MORE.items()
    }
    files["a file for another library"] = OTHERS["a server"].format("fastmcp")
    lines = [
        f"{name}\n  {_refusal(tmp_path / str(number), text)}"
        for number, (name, text) in enumerate(files.items())
    ]
    snapshot("refused_agent_files", "\n".join(lines))


def _refusal(folder: Path, text: str) -> str:
    registry: Any = importlib.import_module("ostiary.registry")
    loading: Any = importlib.import_module("ostiary.loading")
    folder.mkdir()
    (folder / "fastmcp.py").write_text("class Server:\n    def tool(self, function): return function\n")
    file = folder / "agent.py"
    file.write_text(text)
    with pytest.raises(loading.CannotLoad) as refused:
        loading.load(registry.Registry(), file=str(file))
    # The interpreter's own words are its own.
    said = re.sub(r"(SyntaxError: ).*", r"\1…", str(refused.value))
    return re.sub(r" \(for .*\)$", " (for PYTHON)", said)
