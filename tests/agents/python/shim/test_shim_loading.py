"""From a file to what is offered: what counts as the agent's, and what is said of a file that cannot be served."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from shim_child import Child, Serve


def test_a_file_without_decorators_offers_its_public_functions(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "kitchen.py").write_text("def cook(): ...\n")
    child = serve("""
        from kitchen import cook
        from dataclasses import dataclass
        @dataclass
        class Meal:
            name: str
        def serve_meal(meal: Meal) -> str:
            "Serves."
            return meal.name
        def _hidden(): ...
        async def wash() -> None: ...
    """)
    assert child.text("serve_meal", {"meal": {"name": "soup"}}) == "soup"
    assert child.end(child.start("cook"))["kind"] == "failed"
    assert child.end(child.start("_hidden"))["kind"] == "failed"
    assert child.call("wash") == {"content": []}


def test_a_module_of_a_package_is_served_with_its_relative_imports(
    tmp_path: Path, children: ExitStack
) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "prices.py").write_text("APPLE = 3\n")
    (package / "agent.py").write_text("from .prices import APPLE\ndef price() -> int:\n    return APPLE\n")
    child = children.enter_context(Child(None, module="shop.agent", cwd=tmp_path))
    ready = child.hear()
    assert ready["event"] == "ready", ready
    assert [os.path.basename(path) for path in ready["files"]] == ["__init__.py", "agent.py", "prices.py"]
    assert child.text("price") == "3"


def test_the_files_that_make_up_an_agent_are_named(tmp_path: Path, children: ExitStack) -> None:
    (tmp_path / ".venv" / "lib").mkdir(parents=True)
    (tmp_path / ".venv" / "lib" / "package.py").touch()
    (tmp_path / "unused.py").touch()
    (tmp_path / "used.py").touch()
    file = tmp_path / "agent.py"
    file.write_text(
        "import sys; sys.path.append('.venv/lib')\nimport used, package, json\ndef f(): ...\n", "utf-8"
    )
    child = children.enter_context(Child(file))
    assert child.hear()["files"] == [str(file), str(tmp_path / "used.py")]


BROKEN = {
    "a syntax error": ("x = 1\ndef f(:\n    pass\n", "agent.py:2: SyntaxError: "),
    "an exception": ("x = 1\n\nx.y\n", "agent.py:3: AttributeError: 'int' object has no attribute 'y'"),
    "a missing module": ("import nowhere_at_all\n", "agent.py:1: ModuleNotFoundError: No module named 'nowhere_at_all' (for "),
    "an exit": ("import sys\nsys.exit(3)\n", "agent.py:2: the file ended the program"),
    "nothing offered": ("x = 1\n", "agent.py: nothing is offered: put @tool"),
    "two of a name": (
        "from ostiary import tool\n@tool\ndef f(): ...\n@tool\ndef f(): ...\n",
        "the tool f(): there is a tool 'f' already; give it a name=",
    ),
    "a class": ("from ostiary import tool\n@tool\nclass A: ...\n", "agent.py:2: the tool: this is a class"),
    "no function": ("from ostiary import tool\ntool(name='x')(3)\n", "agent.py:2: the tool: this is no function"),
    "a type without a form": (
        "import io\nfrom ostiary import tool\n@tool\ndef f(x: io.StringIO): ...\n",
        "the tool f(), parameter 'x': the type StringIO has no form in JSON",
    ),
    "a bad name": ("from ostiary import tool\n@tool(name='a b')\ndef f(): ...\n", "the name 'a b'"),
    "a hint that cannot be read": (
        "from __future__ import annotations\nfrom ostiary import tool\n@tool\ndef f(x: Nowhere): ...\n",
        "the tool f(): a type hint cannot be read: name 'Nowhere' is not defined",
    ),
    "arguments without names": ("from ostiary import tool\n@tool\ndef f(*x): ...\n", "so *args and / cannot be used ('x')"),
    "a completion of nothing": (
        "from ostiary import completion\ndef g(): ...\n@completion('p', 'a')\ndef f(value): ...\n",
        "the completion of p, a: f()",
    ),
    "a template without its parameter": (
        "from ostiary import resource\n@resource('test://{id}')\ndef f(): ...\n",
        "the variable {id} needs a parameter of its name",
    ),
    "a parameter without its variable": (
        "from ostiary import resource\n@resource('test://x')\ndef f(id): ...\n",
        "'id' is no variable of the address",
    ),
    "an address without a scheme": ("from ostiary import resource\n@resource('x')\ndef f(): ...\n", "begins with a scheme"),
    "a resource without an address": ("from ostiary import resource\n@resource\ndef f(): ...\n", "needs its address"),
    "an unknown way to be a task": ("from ostiary import tool\n@tool(task='x')\ndef f(): ...\n", "task='x' is none of"),
    "what has no JSON": (
        "from ostiary import tool\n@tool(input_schema={'type': 'object', 'default': object()})\ndef f(**x): ...\n",
        "not JSON serializable",
    ),
    "a name without its word": ("from ostiary import tool\n@tool('x')\ndef f(): ...\n", "@tool(name='x')"),
    "a prompt's name without its word": ("from ostiary import prompt\n@prompt('x')\ndef f(): ...\n", "@prompt(name='x')"),
    "a method": (
        "from ostiary import tool\nclass A:\n    @tool\n    def f(self, x: int): ...\n",
        "agent.py:3: the tool f(): this is a method, and there is no object to call it on",
    ),
    "a variable of another library": (
        "from ostiary import resource\n@resource('test://{path*}')\ndef f(path): ...\n",
        "a variable that may hold slashes is {+path}",
    ),
    "an own schema that is no object's": (
        "from ostiary import tool\n@tool(input_schema={})\ndef f(): ...\n",
        "the tool f(): input_schema",
    ),
    "an own schema with other names": (
        "from ostiary import tool\n@tool(input_schema={'type': 'object', 'properties': {'b': {}}})\ndef f(a: int): ...\n",
        "input_schema has b, which the function does not take",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_cannot_be_served_says_where_and_what_to_change(
    tmp_path: Path, children: ExitStack, case: str
) -> None:
    text, expected = BROKEN[case]
    file = tmp_path / "agent.py"
    file.write_text(text, "utf-8")
    child = children.enter_context(Child(file))
    broken = child.hear()
    assert broken["event"] == "broken"
    assert expected in broken["error"]
    assert broken["error"].startswith("agent.py")
    assert "\n" not in broken["error"]
    assert broken["files"] == [str(file)]
    assert child.wait()[0] == 1


OTHERS = {
    "a server": "from {0} import Server\nserver = Server()\n@server.tool\ndef echo(): ...\ndef drop_database(): ...\n",
    "a server made by a function": "from {0} import Server\ndef make(): return Server()\ndef drop_database(): ...\n",
    "the module": "import {0}\nserver = {0}.Server()\ndef drop_database(): ...\n",
    "one of another file": "from app import server\n@server.tool\ndef echo(): ...\ndef drop_database(): ...\n",
}


@pytest.mark.parametrize("library", ["fastmcp", "mcp.server"])
@pytest.mark.parametrize("case", OTHERS)
def test_a_file_for_another_library_is_refused_and_its_functions_are_not_offered(
    tmp_path: Path, children: ExitStack, case: str, library: str
) -> None:
    package = tmp_path / library.replace(".", "/")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class Server:\n    def tool(self, function): return function\n", "utf-8"
    )
    (tmp_path / "app.py").write_text(f"from {library} import Server\nserver = Server()\n", "utf-8")
    file = tmp_path / "agent.py"
    file.write_text(OTHERS[case].format(library), "utf-8")
    broken = children.enter_context(Child(file)).hear()
    assert broken["event"] == "broken", broken
    assert f"written for {library}" in broken["error"] and "put @tool" in broken["error"]


def test_of_a_file_for_another_library_only_what_is_offered_to_us_is_served(
    tmp_path: Path, children: ExitStack
) -> None:
    (tmp_path / "fastmcp.py").write_text("class FastMCP: ...\n", "utf-8")
    file = tmp_path / "agent.py"
    file.write_text(
        "from fastmcp import FastMCP\nfrom ostiary import tool\nserver = FastMCP()\n"
        "@tool\ndef echo(): ...\ndef drop_database(): ...\n",
        "utf-8",
    )
    ready = children.enter_context(Child(file)).hear()
    assert [tool["name"] for tool in ready["catalog"]["tools"]] == ["echo"]


def test_a_file_that_only_speaks_to_other_servers_offers_its_functions(
    tmp_path: Path, children: ExitStack
) -> None:
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text("class ClientSession: ...\n", "utf-8")
    file = tmp_path / "agent.py"
    file.write_text("from mcp import ClientSession\nsession = ClientSession()\ndef f(): ...\n", "utf-8")
    ready = children.enter_context(Child(file)).hear()
    assert [tool["name"] for tool in ready["catalog"]["tools"]] == ["f"]


def test_a_mistake_in_an_imported_file_is_shown_there_and_that_file_is_watched(
    tmp_path: Path, children: ExitStack
) -> None:
    (tmp_path / "part.py").write_text("\n\nraise ValueError('no')\n")
    file = tmp_path / "agent.py"
    file.write_text("import part\n")
    child = children.enter_context(Child(file))
    broken = child.hear()
    assert broken["error"] == "part.py:3: ValueError: no"
    assert broken["files"] == [str(file), str(tmp_path / "part.py")]
    assert broken["traceback"].endswith("ValueError: no\n")
