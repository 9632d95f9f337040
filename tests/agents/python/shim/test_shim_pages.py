"""Pages of a file's tools: where they are, what lists say of them, and that they are read as they are now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shim_child import Serve

PAGED = """
from ostiary import *

PAGE = Page("app.html", connect=["https://a.example"], permissions=["clipboard_write"], border=True)

@tool(page=PAGE, meta={"mine": 1, "ui": {"own": 2}})
def show(ctx: SyncContext) -> str:
    return f"{ctx.can('io.modelcontextprotocol/ui')} {ctx.can('elicitation')}"

@tool(page="app.html", for_page=True)
def again() -> str:
    return "again"

@tool(for_page=True)
def only() -> str:
    return "only"
"""


def test_a_page_is_a_resource_that_its_tools_name(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "app.html").write_text("<h1>one</h1>", "utf-8")
    child = serve(PAGED)
    told = child.end(child.send("read", uri="ui://agent/app.html", template=None, arguments={}))
    (contents,) = told["result"]["contents"]
    assert (contents["text"], contents["mimeType"]) == ("<h1>one</h1>", "text/html;profile=mcp-app")


def test_what_a_client_can_is_asked_by_the_name_of_an_extension(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "app.html").write_text("-", "utf-8")
    child = serve(PAGED)
    assert child.text("show", can=["io.modelcontextprotocol/ui {}"]) == "True False"
    assert child.text("show", can=["io.modelcontextprotocol/ui", "elicitation"]) == "True True"
    assert child.text("show", can=[]) == "False False"


@pytest.mark.usefixtures("library")
def test_lists_say_which_page_a_tool_has_and_what_that_may_reach(tmp_path: Path) -> None:
    from ostiary.loading import load_beside  # type: ignore[import-not-found]
    from ostiary.registry import Registry  # type: ignore[import-not-found]

    (tmp_path / "app.html").write_text("-", "utf-8")
    (tmp_path / "inner.py").write_text(PAGED, "utf-8")
    (tmp_path / "outer.py").write_text("from ostiary import include\ninclude('inner.py', 'in')\n", "utf-8")
    for file, prefix, uri in (
        ("inner.py", "", "ui://inner/app.html"),
        ("outer.py", "in_", "ui://in/inner/app.html"),
    ):
        registry: Any = Registry()
        load_beside(registry, str(tmp_path / file))
        offered = registry.catalog()
        tools = {each["name"]: each.get("_meta") for each in offered["tools"]}
        assert tools == {
            f"{prefix}show": {"mine": 1, "ui": {"own": 2, "resourceUri": uri}},
            f"{prefix}again": {"ui": {"resourceUri": uri, "visibility": ["app"]}},
            f"{prefix}only": {"ui": {"visibility": ["app"]}},
        }
        (page,) = offered["resources"]
        assert (page["uri"], page["name"], page["mimeType"]) == (uri, "app.html", "text/html;profile=mcp-app")
        assert page["_meta"]["ui"] == {
            "csp": {"connectDomains": ["https://a.example"]},
            "permissions": {"clipboardWrite": {}},
            "prefersBorder": True,
        }


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("written", "wrong"),
    [("page='none.html'", "there is no page"), ("page=Page('a', permissions=['all'])", "no permission")],
)
def test_a_page_that_is_none_is_said_when_the_file_is_loaded(
    tmp_path: Path, written: str, wrong: str
) -> None:
    from ostiary import Misuse  # type: ignore[import-not-found]
    from ostiary.loading import load_beside  # type: ignore[import-not-found]
    from ostiary.registry import Registry  # type: ignore[import-not-found]

    (tmp_path / "bad.py").write_text(f"from ostiary import *\n@tool({written})\ndef f(): pass\n", "utf-8")
    with pytest.raises(Misuse, match=wrong):
        load_beside(Registry(), str(tmp_path / "bad.py"))


@pytest.mark.usefixtures("library")
def test_two_pages_of_one_name_are_a_mistake_and_one_page_of_two_tools_is_none(tmp_path: Path) -> None:
    from ostiary import Misuse  # type: ignore[import-not-found]
    from ostiary.loading import load_beside  # type: ignore[import-not-found]
    from ostiary.registry import Registry  # type: ignore[import-not-found]

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "app.html").write_text(folder, "utf-8")

    def load(first: str, second: str) -> None:
        tools = f"@tool(page={first})\ndef one(): pass\n@tool(page={second})\ndef two(): pass\n"
        (tmp_path / "both.py").write_text(f"from ostiary import *\n{tools}", "utf-8")
        load_beside(Registry(), str(tmp_path / "both.py"))

    load("'a/app.html'", "'a/app.html'")
    load("Page('a/app.html', connect=['https://x.example'])", "'a/app.html'")
    for second in ("'b/app.html'", "Page('a/app.html', connect=['https://y.example'])"):
        with pytest.raises(Misuse, match="already"):
            load("'a/app.html'", second)
