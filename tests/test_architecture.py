"""The import rule: no room imports one above it, no package imports itself by way of others, and each framework has one door.

`auth` stands beside the server and knows nothing of it but `server/lib`. A rule is a row below, with what it exempts.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

HTTP_FRAMEWORKS = frozenset({"quart", "quart_trio", "hypercorn"})
CLIENT_LIBRARIES = frozenset({"httpx2", "httpcore2", "h11"})
CONCRETE_STORES = frozenset(
    {
        "server.store.sqlite",
        "server.store.inline_store",
        "server.cluster.postgres.postgres",
        "server.store.threaded_store",
    }
)

# The rooms of the server, from below: each imports itself and those before it.
ROOMS = (
    "lib",  # what any program could use
    "mcp",  # the protocol as values and tables
    "store",  # jobs, transactions, SQLite, what is kept of calls
    "certificates",  # from an authority (ACME)
    "settings",
    "payments",  # x402, buyer, seller
    "client",  # the other end of MCP and OAuth
    "agents",  # what answers a call
    "calls",  # one call: servers, sessions, tasks, rights, policy
    "transport",  # http, stdio, admission
    "admin",  # what an owner may do at the machine
    "console",  # pages for owners and for trying tools
    "cluster",  # PostgreSQL, workers, copying
    "telemetry",  # traces and metrics sent elsewhere
    "run",  # how a process is put together
    "cli",
)
# The packages of auth, from below; `self_test` and `identity` stand on top of them.
LAYERS = (
    "values",
    "jose",
    "audit",
    "throttling",
    "keys",
    "clients",
    "people",
    "providers",
    "context",
    "client_authentication",
    "grants",
    "authorization",
    "tokens",
    "grant_types",
    "administration",
    "endpoints",
    "pages",
    "self_test",
    "identity",
)
# Those that know nothing of identity.
WITHOUT_AUTH = (
    "lib",
    "mcp",
    "client",
    "agents/base",
    "agents/chat",
    "agents/command",
    "agents/mcp",
    "agents/openapi",
    "agents/python",
    "agents/skills",
    "payments/buyer",
    "payments/test_facilitator",
    "payments/x402",
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    package: str  # a folder or a file, from the top of the checkout
    forbidden: frozenset[str]
    exempt: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()  # what may be imported of all that is forbidden


def upwards(top: str, order: tuple[str, ...], at: int) -> Rule:
    """Return the rule that one room imports none of those above it."""
    room = f"{top}/{order[at]}"
    return Rule(
        package=room if (ROOT / room).is_dir() else f"{room}.py",
        forbidden=frozenset(f"{top}.{above}" for above in order[at + 1 :]),
    )


RULES = (
    Rule(
        package="auth",
        forbidden=HTTP_FRAMEWORKS | {"server", "trio", "anyio", "asyncio"},
        allowed=frozenset({"server.lib"}),
    ),
    Rule(package="auth", forbidden=frozenset({"auth.identity"})),
    # Pages are Quart's, sockets are Hypercorn's, and the way of a call has neither.
    Rule(
        package="server",
        forbidden=HTTP_FRAMEWORKS,
        exempt=("server/console/pages", "server/transport/http/sockets.py"),
    ),
    Rule(package="server/transport/http/sockets.py", forbidden=frozenset({"quart", "quart_trio"})),
    Rule(package="server/console/pages", forbidden=frozenset({"hypercorn"})),
    Rule(
        package="server/console/pages",
        forbidden=frozenset({"quart_trio"}),
        exempt=("server/console/pages/quart_app.py",),
    ),
    # The entry point knows the table of commands, and a command builds its server through `app`.
    Rule(
        package="server",
        forbidden=frozenset({"server.cli"}),
        exempt=("server/cli", "server/__main__.py"),
    ),
    Rule(
        package="server",
        forbidden=frozenset(
            {
                "server.run.app",
                "server.run.app_stdio",
                "server.run.app_tcp",
                "server.run.app_workers",
            }
        ),
        exempt=("server/cli",),
    ),
    # Nobody but `store_place` picks a concrete store; over stdio and TCP, and where agents are only tried, that is the one in memory.
    Rule(
        package="server",
        forbidden=CONCRETE_STORES,
        exempt=(
            "server/store",
            "server/cluster/postgres",
            "server/run/store_place.py",
            "server/run/single_server.py",
            "server/run/agent_dry_run.py",
        ),
    ),
    # What stdio loads at its start is little: no pages, no login.
    *(
        Rule(
            package=f"server/run/{name}.py",
            forbidden=frozenset({"server.run.app", "server.transport.http", "server.run.services"}),
        )
        for name in ("single_server", "app_stdio", "app_tcp", "agent_dry_run")
    ),
    Rule(
        package="server/transport/stdio/stdio_conversation.py",
        forbidden=frozenset({"server.store", "server.transport.http", "server.run.services"}),
    ),
    Rule(package="server/mcp", forbidden=frozenset({"trio", "auth"})),
    # Calls that this server makes: no client library, whose cookies, redirects and proxies would have to be switched off.
    Rule(package="server", forbidden=CLIENT_LIBRARIES),
    Rule(package="auth", forbidden=CLIENT_LIBRARIES),
    # In the interpreter of an agent there is nothing but the standard library, and what its author installed.
    Rule(
        package="server/agents/python/shim",
        forbidden=HTTP_FRAMEWORKS | {"trio", "msgspec", "server", "auth"},
        allowed=frozenset({"server.agents.python.shim"}),
    ),
    # The parent of the workers serves nobody: it logs, and takes the commands of the owner.
    Rule(
        package="server/cluster/workers",
        forbidden=frozenset({"server", "auth"}),
        allowed=frozenset({"server.cluster.workers", "server.admin.control", "server.lib.log"}),
    ),
    # A unit of systemd is a text.
    Rule(
        package="server/run/service",
        forbidden=frozenset({"server", "auth"}),
        allowed=frozenset({"server.run.service", "server.__version__"}),
    ),
    # A call is resolved once, by whoever makes its request; which store keeps it is nobody's business there.
    Rule(package="server/calls", forbidden=CONCRETE_STORES),
    *(
        Rule(
            package=f"server/{name}",
            forbidden=frozenset({"auth"}),
            # As whom an upstream is called; and rows with a time in them.
            exempt=(
                "server/agents/mcp/trust",
                "server/agents/chat/conversation_rows.py",
                "server/agents/chat/shared_memory.py",
            ),
        )
        for name in WITHOUT_AUTH
    ),
    *(upwards("server", ROOMS, at) for at in range(len(ROOMS) - 1)),
    *(upwards("auth", LAYERS, at) for at in range(len(LAYERS) - 1)),
)


@cache
def imported_names(source: str, package: tuple[str, ...]) -> frozenset[str]:
    """Return every module, and every name of one, that a module of `package` imports; relative ones spelled out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _within(name: str, packages: frozenset[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def offences(rule: Rule, root: Path) -> list[str]:
    start = root / rule.package
    files = [start] if start.suffix == ".py" else sorted(start.rglob("*.py"))
    found: list[str] = []
    for path in files:
        if any(path.is_relative_to(root / exempt) for exempt in rule.exempt):
            continue
        names = imported_names(path.read_text("utf-8"), path.relative_to(root).parent.parts)
        broken = {name for name in names if _within(name, rule.forbidden) and not _within(name, rule.allowed)}
        found += [f"{path.relative_to(root)} imports {name}" for name in sorted(broken)]
    return found


@pytest.mark.parametrize(
    ("top", "order", "loose"), [("server", ROOMS, {"__main__"}), ("auth", LAYERS, set[str]())]
)
def test_every_module_is_in_a_room_that_has_its_place(
    top: str, order: tuple[str, ...], loose: set[str]
) -> None:
    found = {path.relative_to(ROOT / top).parts[0].removesuffix(".py") for path in (ROOT / top).rglob("*.py")}
    assert found - {"__init__"} - loose == set(order)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.package}!{min(rule.forbidden)}")
def test_a_room_never_imports_what_lies_above_it(rule: Rule) -> None:
    for place in (rule.package, *rule.exempt):
        assert (ROOT / place).exists(), f"{place} has moved: its rule watches nothing"
    broken = offences(rule, ROOT)
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "line",
    [
        "import server.admin.rows",
        "from server import admin",
        "from server.admin import rows",
        "from ..admin import rows",
        "from .. import admin",
        "def late() -> None:\n    import quart",
    ],
)
def test_the_rule_sees_every_way_of_writing_an_import(line: str, tmp_path: Path) -> None:
    (tmp_path / "server" / "mcp").mkdir(parents=True)
    (tmp_path / "server" / "mcp" / "seeded.py").write_text(line, "utf-8")
    rule = Rule(package="server/mcp", forbidden=HTTP_FRAMEWORKS | {"server.admin"})
    assert offences(rule, tmp_path)


def test_every_rule_sees_each_breach_of_it(tmp_path: Path) -> None:
    for number, rule in enumerate(RULES):
        root = tmp_path / str(number)
        seeded = root / rule.package
        if seeded.suffix != ".py":
            seeded /= "seeded.py"
        seeded.parent.mkdir(parents=True)
        for name in rule.forbidden:
            seeded.write_text(f"from {name} import anything", "utf-8")
            assert offences(rule, root) == [f"{seeded.relative_to(root)} imports {name}.anything"]
        for name in rule.allowed:
            seeded.write_text(f"import {name}", "utf-8")
            assert offences(rule, root) == []


def test_a_name_is_not_allowed_by_another_of_its_package(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    rule = Rule(package="server", forbidden=frozenset({"server"}), allowed=frozenset({"server.lib.log"}))
    (tmp_path / "server" / "seeded.py").write_text(
        "import server\nfrom server import lib\nfrom server.lib import log, logs", "utf-8"
    )
    assert offences(rule, tmp_path) == [
        f"server/seeded.py imports {name}" for name in ("server", "server.lib", "server.lib.logs")
    ]


def test_the_rule_allows_what_lies_below(tmp_path: Path) -> None:
    (tmp_path / "server" / "mcp").mkdir(parents=True)
    (tmp_path / "server" / "mcp" / "clean.py").write_text(
        "from . import errors\nfrom .messages import Tool\nimport msgspec", "utf-8"
    )
    rule = Rule(package="server/mcp", forbidden=HTTP_FRAMEWORKS | {"server.admin"})
    assert offences(rule, tmp_path) == []


# ── circles ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def import_graph(root: Path, packages: tuple[str, ...]) -> dict[str, set[str]]:
    """Which module of `packages` imports which. An import counts wherever it stands, in a function or for types alone; and
    whoever imports a module of another package imports that package, too."""
    files = {
        ".".join(path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts): path
        for package in packages
        for path in sorted(each.relative_to(root) for each in (root / package).rglob("*.py"))
    }
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        names = imported_names((root / path).read_text("utf-8"), path.parent.parts)
        parts = [name.split(".") for name in names]
        reached = {".".join(each[:length]) for each in parts for length in range(1, len(each) + 1)}
        around = {".".join(module.split(".")[:length]) for length in range(1, module.count(".") + 2)}
        graph[module] = {name for name in reached if name in files} - around
    return graph


def circles(graph: dict[str, set[str]]) -> frozenset[frozenset[str]]:
    """Groups of modules each of which imports every other, by however many steps: Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for imported in sorted(graph[module]):
            if imported not in index:
                visit(imported)
                low[module] = min(low[module], low[imported])
            elif imported in stack:
                low[module] = min(low[module], index[imported])
        if low[module] == index[module]:
            group = frozenset(stack[stack.index(module) :])
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.add(group)

    for module in graph:
        if module not in index:
            visit(module)
    return frozenset(found)


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = circles(import_graph(ROOT, ("auth", "server")))
    assert not found, "\n".join(" ⇄ ".join(sorted(each)) for each in found)


def by_package(graph: dict[str, set[str]], packages: frozenset[str]) -> dict[str, set[str]]:
    """Return which package imports from which, as their modules do."""

    def package(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    condensed: dict[str, set[str]] = {}
    for module, imported in graph.items():
        reached = {package(name) for name in imported if name not in packages}
        condensed.setdefault(package(module), set()).update(reached - {package(module)})
    return condensed


def test_no_package_imports_itself_by_way_of_others() -> None:
    packages = frozenset(
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("auth", "server")
        for path in (ROOT / top).rglob("__init__.py")
    )
    graph = by_package(import_graph(ROOT, ("auth", "server")), packages)
    assert len(graph) > 60
    found = circles(graph)
    assert not found, "\n".join(" ⇄ ".join(sorted(each)) for each in found)


def test_a_circle_of_packages_is_seen_where_no_module_is_in_one() -> None:
    graph = {
        "a": set[str](),
        "b": set[str](),
        "a.one": {"b.one", "b"},
        "b.one": set[str](),
        "b.two": {"a.two", "a"},
        "a.two": set[str](),
    }
    assert not circles(graph)
    assert circles(by_package(graph, frozenset({"a", "b"}))) == {frozenset({"a", "b"})}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("from auth.b import B", "import auth.a"),
        ("from auth.b import B", "from auth import a"),
        ("from .b import B", "from . import a"),
        ("from auth import b", "def late() -> None:\n    from auth.a import A"),
        ("from auth import b", "if TYPE_CHECKING:\n    from auth.a import A"),
    ],
)
def test_a_circle_is_seen_however_it_is_written(one: str, other: str, tmp_path: Path) -> None:
    (tmp_path / "auth").mkdir()
    for name, text in (("__init__", ""), ("a", one), ("b", other), ("c", "from auth import a, b")):
        (tmp_path / "auth" / f"{name}.py").write_text(text, "utf-8")
    assert circles(import_graph(tmp_path, ("auth",))) == {frozenset({"auth.a", "auth.b"})}


def test_a_package_is_imported_with_each_of_its_modules(tmp_path: Path) -> None:
    for name, text in (
        ("grants/__init__", "from auth.grants.code import redeem"),
        ("grants/code", "from auth.tokens import verify"),
        ("grants/names", "TOKEN = 1"),
        ("tokens/__init__", ""),
        ("tokens/verify", "from auth.grants.names import TOKEN"),
    ):
        (tmp_path / "auth" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "auth" / f"{name}.py").write_text(text, "utf-8")
    assert circles(import_graph(tmp_path, ("auth",))) == {
        frozenset({"auth.grants", "auth.grants.code", "auth.tokens.verify"})
    }


def test_several_modules_in_a_ring_are_one_circle() -> None:
    ring = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str]()}
    assert circles(ring) == {frozenset({"a", "b", "c"})}


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def public_classes(root: Path, folders: tuple[str, ...], *, without: str = "-") -> dict[str, list[str]]:
    """Where each public class stands, by its name."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            if path.is_relative_to(root / without):
                continue
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(path.relative_to(root).as_posix())
    return found


# The package `ostiary` is written for the authors of agents, with names of its own: a tool is a tool there, too.
@pytest.mark.parametrize(
    ("folders", "without"),
    [(("auth", "server"), "server/agents/python/shim"), (("server/agents/python/shim",), "-")],
)
def test_a_public_class_has_a_name_of_its_own(folders: tuple[str, ...], without: str) -> None:
    found = public_classes(ROOT, folders, without=without)
    assert len(found) > 20
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_a_name_that_is_given_twice_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("one", "two"):
        (tmp_path / "a" / f"{name}.py").write_text(
            "class Refusal:\n    pass\n\n\nclass _Own:\n    pass", "utf-8"
        )
    assert public_classes(tmp_path, ("a",)) == {"Refusal": ["a/one.py", "a/two.py"]}
