"""The import rule: what lies below never imports what lies above, and each framework has one door.

    cli → program → http, stdio → request → endpoint → tasks, sessions, rights → backends → mcp

`auth` stands beside the server and knows nothing of it. Nothing imports itself by way of others. A rule is a row below, with what it exempts.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

HTTP_FRAMEWORKS = frozenset({"quart", "quart_trio", "hypercorn"})

# Which packages of server/ each may import, from below. `server/mcp/loads.py`, `server/lib/own_files.py`, `server/lib/paths.py`, `server/lib/private_file.py`, `sealing.py`, `server/lib/shortened.py`, `server/lib/surrogates.py`,
# `server/mcp/tool_names.py` and the version are everybody's.
FLOORS: dict[str, frozenset[str]] = {
    "mcp": frozenset(),  # values and tables
    "observe": frozenset(),
    "store": frozenset(),
    "shim": frozenset(),  # runs in the interpreter of an agent
    "money": frozenset(),
    "evm": frozenset(),  # signatures and addresses of a chain
    "records": frozenset({"observe", "store"}),  # of calls
    "outgoing": frozenset({"store"}),
    "acme": frozenset({"observe", "outgoing", "store"}),  # certificates from an authority
    "x402": frozenset({"money", "outgoing"}),  # the protocol of payments, and those who carry them out
    "facilitator": frozenset({"evm", "http", "money", "observe", "x402"}),  # one for trying it out
    "paying": frozenset({"evm", "mcp", "money", "outgoing", "x402"}),  # the side that pays
    "telemetry": frozenset({"backends", "observe", "outgoing", "settings"}),  # traces and metrics for collectors
    "backends": frozenset({"limits", "mcp", "observe", "outgoing", "paying", "settings"}),
    "limits": frozenset({"store"}),  # how often, how many, and whose turn it is
    # MCP servers of others behind ours; how a stream of events is read is the client's, too
    "gateway": frozenset({
        "backends", "client", "letters", "limits", "mcp", "money", "observe", "outgoing", "paying", "settings", "x402",
    }),
    "command": frozenset({"backends", "mcp", "observe"}),  # programs that are started for each call
    "mock": frozenset({"backends", "mcp"}),
    # what stands in front of tools
    "policy": frozenset({"backends", "command", "limits", "mcp", "mock", "observe", "settings", "store"}),
    "yaml": frozenset(),
    "skills": frozenset({"backends", "mcp", "observe", "yaml"}),  # text that a model reads
    "openapi": frozenset({"backends", "mcp", "observe", "outgoing", "settings", "yaml"}),  # an HTTP API as tools
    # which upstream is believed what, and as whom it is called
    "trust": frozenset({"backends", "client", "gateway", "mcp", "observe", "outgoing", "settings", "store"}),
    "settings": frozenset({"backends", "evm", "limits", "money", "outgoing", "rights", "x402"}),  # of each kind of agent; what a selection of tools may say
    "rights": frozenset({"backends", "mcp", "settings"}),
    "client": frozenset({"outgoing", "paying", "settings", "yaml"}),
    "samples": frozenset({"client"}),  # programs that call a tool, with arguments made of its schema
    "checks": frozenset({"samples"}),  # what can be said of tools from outside
    "letters": frozenset({"limits", "observe", "store"}),  # between nodes that share a database
    "sessions": frozenset({"backends", "letters", "mcp", "observe", "store"}),
    "tasks": frozenset({"backends", "letters", "mcp", "observe", "store"}),
    "repeats": frozenset({"mcp", "observe", "store"}),  # a call that is made again
    "till": frozenset({"backends", "mcp", "money", "observe", "paying", "repeats", "settings", "store", "x402"}),
    "conversations": frozenset({"backends", "observe", "repeats", "store"}),  # with models, known to all processes
    "endpoint": frozenset({
        "backends", "command", "conversations", "gateway", "letters", "limits", "mcp", "mock", "observe", "openapi", "paying", "policy", "records", "repeats", "rights",
        "sessions", "settings", "skills", "store", "tasks", "telemetry", "till", "trust",
    }),
    "request": frozenset({
        "backends", "endpoint", "limits", "mcp", "money", "observe", "policy", "records", "repeats", "rights", "sessions", "store",
        "tasks", "telemetry", "till", "x402",
    }),
    "tryout": frozenset({"endpoint", "mcp", "request", "rights", "samples", "settings"}),  # tools, tried out in a browser
    "overview": frozenset({"backends", "endpoint", "records", "store"}),  # what an owner wants to know at a glance
    "owner": frozenset({"admin", "rights", "store", "trust"}),  # what whoever owns the server does in a browser
    "admission": frozenset({"observe", "rights", "settings", "store"}),
    "http": frozenset({
        "admission", "endpoint", "limits", "mcp", "money", "observe", "overview", "owner", "repeats", "request", "rights", "sessions",
        "settings", "store", "till", "tryout", "x402",
    }),
    "stdio": frozenset({"client", "endpoint", "mcp", "observe", "request", "sessions"}),
    "admin": frozenset({"acme", "evm", "money", "observe", "records", "rights", "store", "till", "trust"}),
    # several processes on one machine; a parent of them carries nothing of what they serve
    "workers": frozenset({"admin", "observe"}),
    "program": frozenset({
        "acme", "admin", "admission", "backends", "client", "endpoint", "http", "letters", "limits", "money", "observe", "outgoing", "overview", "owner",
        "records", "repeats", "request", "rights", "sessions", "settings", "stdio", "store", "tasks", "telemetry", "till", "trust",
        "tryout", "workers", "x402",
    }),
    "moving": frozenset({"store", "till"}),  # rows from one database to another
    "service": frozenset(),  # what systemd is told of the server
    "cli": frozenset({
        "admin", "checks", "client", "endpoint", "evm", "facilitator", "gateway", "mock", "money", "moving", "observe", "overview", "paying",
        "policy", "program", "records", "samples", "service", "settings", "skills", "store", "till", "trust", "x402",
    }),
}  # fmt: skip
# Those that know nothing of identity.
WITHOUT_AUTH = (
    "mcp",
    "backends",
    "gateway",
    "command",
    "client",
    "samples",
    "checks",
    "shim",
    "money",
    "evm",
    "x402",
    "facilitator",
    "paying",
    "yaml",
    "skills",
    "openapi",
    "service",
    "workers",
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    package: str  # a folder or a file, from the top of the checkout
    forbidden: frozenset[str]
    exempt: tuple[str, ...] = ()


def auth_without(*rooms: str) -> frozenset[str]:
    """All of `auth` but these."""
    found = {path.stem for path in (ROOT / "auth").iterdir() if path.suffix == ".py" or path.is_dir()}
    return frozenset(f"auth.{name}" for name in found - {"__init__", "__pycache__", *rooms})


RULES = (
    Rule(package="auth", forbidden=HTTP_FRAMEWORKS | {"server", "trio", "anyio", "asyncio"}),
    # The floors of `auth`, from below: values, signed JSON, keys, the bag of parts, and at the top what the server alone imports.
    Rule(package="auth/values", forbidden=auth_without("values")),
    Rule(package="auth/jose", forbidden=auth_without("values", "jose")),
    Rule(package="auth/keys", forbidden=auth_without("values", "jose", "keys", "audit")),
    Rule(
        package="auth/context/identity_parts.py",
        forbidden=auth_without("values", "jose", "keys", "clients", "upstream", "throttle"),
    ),
    Rule(package="auth", forbidden=frozenset({"auth.identity"})),
    Rule(package="server", forbidden=HTTP_FRAMEWORKS, exempt=("server/transport/http",)),
    # Pages are Quart's, sockets are Hypercorn's, and the way of a call has neither.
    Rule(
        package="server/transport/http",
        forbidden=HTTP_FRAMEWORKS,
        exempt=(
            "server/console/pages/quart_app.py",
            "server/console/pages",
            "server/transport/http/sockets.py",
        ),
    ),
    Rule(package="server/transport/http/sockets.py", forbidden=frozenset({"quart", "quart_trio"})),
    Rule(package="server/console/pages/quart_app.py", forbidden=frozenset({"hypercorn"})),
    Rule(package="server/console/pages", forbidden=frozenset({"hypercorn", "quart_trio"})),
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
        forbidden=frozenset(
            {
                "server.store.sqlite",
                "server.store.inline_store",
                "server.cluster.postgres.postgres",
                "server.store.threaded_store",
            }
        ),
        exempt=(
            "server/store",
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
        for name in ("alone", "app_stdio", "app_tcp", "rehearsal")
    ),
    Rule(
        package="server/transport/stdio/stdio_conversation.py",
        forbidden=frozenset({"server.store", "server.transport.http", "server.run.services"}),
    ),
    Rule(package="server/mcp", forbidden=frozenset({"trio", "auth"})),
    # Calls that this server makes: no client library, whose cookies, redirects and proxies would have to be switched off.
    Rule(package="server/lib/http_client", forbidden=frozenset({"httpx2", "httpcore2", "h11"})),
    # In the interpreter of an agent there is nothing but the standard library, and what its author installed.
    Rule(package="server/agents/python/shim", forbidden=HTTP_FRAMEWORKS | {"trio", "msgspec"}),
    # A call is resolved once, by whoever makes its request; which store keeps it is nobody's business there.
    Rule(
        package="server/calls",
        forbidden=frozenset(
            {
                "server.store.sqlite",
                "server.store.inline_store",
                "server.cluster.postgres.postgres",
                "server.store.threaded_store",
            }
        ),
    ),
    *(Rule(package=f"server/{name}", forbidden=frozenset({"auth"})) for name in WITHOUT_AUTH),
    *(
        Rule(
            package=f"server/{name}",
            forbidden=frozenset(f"server.{other}" for other in FLOORS.keys() - below - {name}),
        )
        for name, below in FLOORS.items()
    ),
)


@cache
def imported_names(source: str, package: tuple[str, ...]) -> frozenset[str]:
    """Return every module, and every name in it, that a module of `package` imports; relative ones spelled out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


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


def test_every_package_of_the_server_has_its_floor() -> None:
    packages = {path.name for path in (ROOT / "server").iterdir() if any(path.rglob("*.py"))}
    assert packages == FLOORS.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.package}!{min(rule.forbidden)}")
def test_a_package_never_imports_what_lies_above_it(rule: Rule) -> None:
    assert (ROOT / rule.package).exists(), f"{rule.package} has moved: its rule watches nothing"
    broken = offences(rule, ROOT)
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "line",
    [
        "import server.transport.http.routes",
        "from server.transport import http",
        "from server.http import routes",
        "from ..http import routes",
        "from .. import http",
        "def late() -> None:\n    import quart",
    ],
)
def test_the_rule_sees_every_way_of_writing_an_import(line: str, tmp_path: Path) -> None:
    (tmp_path / "server" / "mcp").mkdir(parents=True)
    (tmp_path / "server" / "mcp" / "seeded.py").write_text(line, "utf-8")
    rule = Rule(package="server/mcp", forbidden=HTTP_FRAMEWORKS | {"server.transport.http"})
    assert offences(rule, tmp_path)


def test_the_rule_allows_what_lies_below(tmp_path: Path) -> None:
    (tmp_path / "server" / "mcp").mkdir(parents=True)
    (tmp_path / "server" / "mcp" / "clean.py").write_text(
        "from . import errors\nfrom .messages import Tool\nimport msgspec", "utf-8"
    )
    rule = Rule(package="server/mcp", forbidden=HTTP_FRAMEWORKS | {"server.transport.http"})
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
        ("grants/__init__", "from auth.grant_types.authorization_code_grant import redeem"),
        ("grants/code", "from auth.tokens import access_token_verifier as verify"),
        ("grants/names", "TOKEN = 1"),
        ("tokens/__init__", ""),
        ("tokens/verify", "from auth.grants.names import TOKEN"),
    ):
        (tmp_path / "auth" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "auth" / f"{name}.py").write_text(text, "utf-8")
    assert circles(import_graph(tmp_path, ("auth",))) == {
        frozenset(
            {
                "auth.grant_types",
                "auth.grant_types.authorization_code_grant",
                "auth.tokens.access_token_verifier",
            }
        )
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
