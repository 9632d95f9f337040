"""The import rule: what lies below never imports what lies above, and each framework has one door.

    cli → app → http, stdio → calls, sessions, subscriptions → backends, limits → mcp

`auth` stands beside the server and knows nothing of it. A rule is a row below, with what it exempts.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

HTTP_FRAMEWORKS = frozenset({"quart", "quart_trio", "hypercorn"})
ABOVE_CALLS = frozenset(
    {
        "server.cli",
        "server.app",
        "server.app_stdio",
        "server.answering",
        "server.services",
        "server.http",
        "server.stdio",
        "server.web",
    }
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    package: str  # a folder or a file, from the top of the checkout
    forbidden: frozenset[str]
    exempt: tuple[str, ...] = ()


RULES = (
    Rule(package="auth", forbidden=HTTP_FRAMEWORKS | {"server", "trio", "anyio", "asyncio"}),
    Rule(package="server", forbidden=HTTP_FRAMEWORKS, exempt=("server/http",)),
    # The entry point knows the table of commands, and a command builds its server through `app`.
    Rule(
        package="server",
        forbidden=frozenset({"server.cli"}),
        exempt=("server/cli", "server/__main__.py"),
    ),
    Rule(
        package="server",
        forbidden=frozenset({"server.app", "server.app_stdio"}),
        exempt=("server/cli", "server/app.py", "server/app_stdio.py"),
    ),
    # Nobody but `app` picks a concrete store; over stdio that is the one in memory.
    Rule(
        package="server",
        forbidden=frozenset({"server.store.sqlite", "server.store.inline"}),
        exempt=("server/store", "server/app.py", "server/app_stdio.py"),
    ),
    # What stdio loads at its start is little: no pages, no login.
    Rule(
        package="server/app_stdio.py", forbidden=frozenset({"server.app", "server.http", "server.services"})
    ),
    Rule(package="server/stdio.py", forbidden=frozenset({"server.store", "server.http", "server.services"})),
    Rule(
        package="server/mcp",
        forbidden=HTTP_FRAMEWORKS
        | ABOVE_CALLS
        | {
            "auth",
            "trio",
            "server.calls",
            "server.store",
            "server.backends",
            "server.client",
            "server.control",
        },
    ),
    Rule(
        package="server/backends",
        forbidden=ABOVE_CALLS | {"auth", "server.calls", "server.store", "server.control"},
    ),
    # In the interpreter of an agent there is nothing but the standard library, and what its author installed.
    Rule(
        package="server/shim",
        forbidden=HTTP_FRAMEWORKS
        | ABOVE_CALLS
        | {
            "auth",
            "trio",
            "msgspec",
            "server.mcp",
            "server.backends",
            "server.calls",
            "server.client",
            "server.store",
        },
    ),
    Rule(package="server/calls.py", forbidden=ABOVE_CALLS | {"server.store.sqlite"}),
    Rule(package="server/store", forbidden=ABOVE_CALLS | {"server.mcp", "server.backends", "server.calls"}),
    Rule(
        package="server/client",
        forbidden=ABOVE_CALLS | {"auth", "server.calls", "server.store", "server.backends", "server.control"},
    ),
    Rule(
        package="server/observe", forbidden=ABOVE_CALLS | {"server.calls", "server.store", "server.backends"}
    ),
)


def imported_names(source: str, package: tuple[str, ...]) -> set[str]:
    """Every module, and every name in it, that a module of `package` imports; relative ones spelled out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def offences(rule: Rule, root: Path) -> list[str]:
    start = root / rule.package
    files = [start] if start.suffix == ".py" else sorted(start.rglob("*.py"))
    found: list[str] = []
    for path in files:
        if any(path.is_relative_to(root / exempt) for exempt in rule.exempt):
            continue
        names = imported_names(path.read_text("utf-8"), path.relative_to(root).parent.parts)
        broken = sorted(n for n in names if any(n == f or n.startswith(f + ".") for f in rule.forbidden))
        found += [f"{path.relative_to(root)} imports {name}" for name in broken]
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.package}!{min(rule.forbidden)}")
def test_a_package_never_imports_what_lies_above_it(rule: Rule) -> None:
    assert (ROOT / rule.package).exists(), f"{rule.package} has moved: its rule watches nothing"
    broken = offences(rule, ROOT)
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "line",
    [
        "import server.http.routes",
        "from server import http",
        "from server.http import routes",
        "from ..http import routes",
        "from .. import http",
        "def late() -> None:\n    import quart",
    ],
)
def test_the_rule_sees_every_way_of_writing_an_import(line: str, tmp_path: Path) -> None:
    (tmp_path / "server" / "mcp").mkdir(parents=True)
    (tmp_path / "server" / "mcp" / "seeded.py").write_text(line, "utf-8")
    rule = next(rule for rule in RULES if rule.package == "server/mcp")
    assert offences(rule, tmp_path)


def test_the_rule_allows_what_lies_below(tmp_path: Path) -> None:
    (tmp_path / "server" / "mcp").mkdir(parents=True)
    (tmp_path / "server" / "mcp" / "clean.py").write_text(
        "from . import errors\nfrom .messages import Tool\nimport msgspec", "utf-8"
    )
    rule = next(rule for rule in RULES if rule.package == "server/mcp")
    assert offences(rule, tmp_path) == []
