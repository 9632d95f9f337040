"""The documents against the code: settings that they show load, files that they name exist, tables are complete."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import cast

import click
import msgspec
import pytest

from auth.endpoints.endpoint_table import FORMS, SPECIAL
from auth.values import endpoint_paths
from server.agents.base.agent_wallet import PayConfig
from server.agents.command.command_agent import CommandTool
from server.agents.command.resource_limits import ProcessBounds
from server.agents.mcp.upstream_identity import UpstreamOAuth
from server.agents.openapi.openapi_settings import ClientGrant
from server.cli import COMMANDS
from server.cli.use.installing import CLIENTS
from server.settings.acme_settings import AcmeConfig
from server.settings.limit_settings import LimitsConfig, ServerLimitsConfig
from server.settings.money_settings import (
    AssetConfig,
    CapsConfig,
    FacilitatorConfig,
    PaymentsConfig,
    PlanConfig,
    PriceTable,
    ToolMoney,
)
from server.settings.policy_settings import ScopeConfig, TokenConfig, ToolConfig
from server.settings.provider_settings import UpstreamConfig, UpstreamUser
from server.settings.resolved_settings import resolve
from server.settings.rule_settings import ConfirmConfig, HookConfig, RedactConfig, RuleConfig, WhoConfig
from server.settings.setting_shapes import Compat, Config, ServerConfig
from server.settings.settings_reader import AGENT_KINDS, agent_shape, load
from server.store.migrate import packaged_migrations
from tests.auth.browser_fakes import House
from tests.auth.routed_pages import site_for
from tests.made_certificates import write_certificate

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


SETTINGS = [
    pytest.param(block, id=f"{named(document)}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(
        re.findall(r"```toml\n(.*?)```", document.read_text("utf-8"), re.DOTALL), 1
    )
]


@pytest.mark.parametrize("block", SETTINGS)
def test_settings_that_a_document_shows_load_and_resolve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in re.findall(
        r'^store_ca = "~/([^"]+)"', block, re.MULTILINE
    ):  # it is looked at, as at the start
        certificate, _ = write_certificate(tmp_path, "db")
        (tmp_path / name).parent.mkdir(parents=True)
        certificate.rename(tmp_path / name)
    file = tmp_path / "ostiary.toml"
    file.write_text(block, "utf-8")
    resolved = resolve(load(file, {}))
    assert resolved.servers[0].agents


def test_the_documents_show_settings_for_every_kind_of_agent() -> None:
    blocks = "\n".join(str(block.values[0]) for block in SETTINGS)
    assert set(re.findall(r'^\[\[server\.agent\]\]\nkind = "(\w+)"', blocks, re.MULTILINE)) == set(
        AGENT_KINDS
    )


@pytest.mark.parametrize("kind", list(AGENT_KINDS))
def test_every_setting_of_an_agent_is_explained_with_its_default(kind: str) -> None:
    # A kind's own section comes before what several share.
    sections = re.split(r"^## ", text_of("docs/agents.md"), flags=re.MULTILINE)
    own = [text for text in sections if text.startswith(f'`kind = "{kind}"`')]
    page = ROOT / "docs" / "agents" / f"{kind}.md"
    own += [page.read_text("utf-8")] if page.exists() else []
    shared = [text for text in sections if not text.startswith("`kind")]
    explained: dict[str, str] = {}
    for names, default in re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]*) \|", "\n".join(shared + own), re.MULTILINE
    ):
        explained |= dict.fromkeys(re.findall(r"\w+", names), default)
    for field in msgspec.structs.fields(agent_shape(kind)):
        assert field.name in explained, f"docs/agents.md does not explain {field.name}"
        if field.required:
            assert explained[field.name] == "needed"
        # An empty description stands for one of our own, which is too long to be repeated.
        elif isinstance(field.default, (bool, int, float, str)) and field.name != "tool_description":
            written = msgspec.json.encode(field.default).decode().removesuffix(".0")
            assert explained[field.name] == f"`{written}`"


def default_of(field: msgspec.structs.FieldInfo) -> str | None:
    """How a document writes it: a dash where nothing is a default of its own, None for what cannot be told in a word."""
    if field.required:
        return "needed"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if default is None or default == {} or isinstance(default, msgspec.Struct):
        return "–"
    if isinstance(default, tuple):
        return f"`[{', '.join(json.dumps(each) for each in cast('tuple[str, ...]', default))}]`"
    return f"`{msgspec.json.encode(default).decode().removesuffix('.0')}`"


# Where the settings of a shape are explained: the document, and how the table's first column is headed.
EXPLAINED = [
    pytest.param(Config, "docs/operating.md", "setting", id="settings"),
    pytest.param(ServerConfig, "docs/operating.md", "setting", id="server"),
    pytest.param(TokenConfig, "docs/operating.md", "of `tokens`", id="token"),
    pytest.param(Compat, "docs/mcp.md", "`compat`", id="compat"),
    pytest.param(ScopeConfig, "docs/scopes.md", "`[[scope]]`", id="scope"),
    pytest.param(ToolConfig, "docs/scopes.md", "`[server.tools.NAME]`", id="tool"),
    pytest.param(RuleConfig, "docs/policy.md", "of `[[server.policy]]`", id="policy"),
    pytest.param(WhoConfig, "docs/policy.md", "of `who`", id="policy-who"),
    pytest.param(HookConfig, "docs/policy.md", "of `before`, `after`", id="hook"),
    pytest.param(RedactConfig, "docs/policy.md", "of `redact`", id="redact"),
    pytest.param(ConfirmConfig, "docs/policy.md", "of `confirm`", id="confirm"),
    pytest.param(AcmeConfig, "docs/deploy.md", "of `[acme]`", id="acme"),
    pytest.param(LimitsConfig, "docs/limits.md", "of `[limits]`", id="limits"),
    pytest.param(ServerLimitsConfig, "docs/limits.md", "of `[server.limits]`", id="server-limits"),
    pytest.param(PaymentsConfig, "docs/prices.md", "of `[payments]`", id="payments"),
    pytest.param(AssetConfig, "docs/prices.md", "of `[[payments.asset]]`", id="asset"),
    pytest.param(FacilitatorConfig, "docs/prices.md", "of `[[payments.facilitator]]`", id="facilitator"),
    pytest.param(CapsConfig, "docs/prices.md", "of `[payments.caps]`", id="caps"),
    pytest.param(PlanConfig, "docs/prices.md", "of `[[plan]]`", id="plan"),
    pytest.param(PriceTable, "docs/prices.md", "of a price", id="price"),
    pytest.param(ToolMoney, "docs/prices.md", "of `[server.tools.NAME]`", id="tool-money"),
    pytest.param(PayConfig, "docs/agents.md", "of `[server.agent.pay]`", id="agent-pay"),
    pytest.param(CommandTool, "docs/agents/command.md", "of `[[server.agent.tool]]`", id="command-tool"),
    pytest.param(ProcessBounds, "docs/agents/command.md", "of `limits`", id="command-limits"),
    pytest.param(ClientGrant, "docs/agents/openapi.md", "of a client's credential", id="openapi-client"),
    pytest.param(UpstreamConfig, "docs/people.md", "setting", id="upstream"),
    pytest.param(UpstreamOAuth, "docs/agents/upstream-trust.md", "of `oauth`", id="upstream-oauth"),
    pytest.param(UpstreamUser, "docs/people.md", "of `allow`", id="upstream-user"),
]
# One row for several, which says where more is said: of each there is a table of its own.
ELSEWHERE = {"tools", "groups", "default_tools", "financial", "unclassified"}


def table_rows(text: str, heading: str) -> dict[str, list[str]]:
    """What the tables with this heading give as default for each setting."""
    found: dict[str, list[str]] = {}
    for table in re.findall(
        rf"^\| {re.escape(heading)} \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE
    ):
        for names, default in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|", table, re.MULTILINE):
            for name in re.findall(r"\w+", names):
                found.setdefault(name, []).append(default)
    return found


@pytest.mark.parametrize(("shape", "document", "heading"), EXPLAINED)
def test_every_setting_is_explained_with_its_default(
    shape: type[msgspec.Struct], document: str, heading: str
) -> None:
    rows = table_rows(text_of(document), heading)
    for field in msgspec.structs.fields(shape):
        name = field.name.removesuffix("s") if field.name == "agents" else field.name
        assert name in rows, f"{document} does not explain {name}"
        if not (shape is ServerConfig and name in ELSEWHERE | {"agent"}):
            assert default_of(field) in rows[name], f"{document}: {name} is {default_of(field)}"


def test_what_bounds_the_tools_of_a_server_is_explained_with_its_default() -> None:
    rows = table_rows(text_of("docs/scopes.md"), "of a `[[server]]`")
    fields = {field.name: field for field in msgspec.structs.fields(ServerConfig)}
    assert {name: rows.get(name) for name in ELSEWHERE} == {
        name: [default_of(fields[name])] for name in ELSEWHERE
    }


def test_no_document_explains_a_setting_that_there_is_not() -> None:
    known = {field.name for shape in (Config, ServerConfig) for field in msgspec.structs.fields(shape)} | {
        "agent"
    }
    assert set(table_rows(text_of("docs/operating.md"), "setting")) <= known
    upstream = {field.name for field in msgspec.structs.fields(UpstreamConfig)}
    assert set(table_rows(text_of("docs/people.md"), "setting")) == upstream


def test_every_table_of_the_store_has_its_time() -> None:
    tables = {
        name
        for migration in packaged_migrations()
        for name in re.findall(r"CREATE TABLE (\w+)", migration.sql)
    }
    kept = re.findall(r"^\| ((?:`\w+`(?:, )?)+)[^|]*\|", text_of("docs/storage.md"), re.MULTILINE)
    assert tables - {name for names in kept for name in re.findall(r"\w+", names)} == set()


def test_every_command_is_named_in_a_document() -> None:
    told = "\n".join(document.read_text("utf-8") for document in DOCUMENTS)
    assert {
        name for name in COMMANDS if f"ostiary {name}" not in told and f"scripts/{name}" not in told
    } == set()


def test_every_program_that_install_knows_has_a_recipe() -> None:
    recipes = text_of("docs/clients.md")
    assert {name for name in CLIENTS if f"| `{name}` |" not in recipes} == set()


def test_every_path_that_is_served_is_explained() -> None:
    told = text_of("docs/http.md")
    fixed = {
        endpoint_paths.AUTHORIZATION_SERVER,
        endpoint_paths.PROTECTED_RESOURCE,
        endpoint_paths.JWKS,
        endpoint_paths.AUTHORIZE,
        *FORMS,
        *(path + "…" if path.endswith("/") else path for path in SPECIAL),
    }
    # What only a page leads to need not be known to anybody: forms, and what comes after one.
    routes = site_for(House().parts).url_map.iter_rules()
    pages = {re.sub(r"<\w+>", "…", route.rule) for route in routes if "GET" in (route.methods or ())}
    pages = {path for path in pages if path not in ("/welcome", "/connect")}
    pages = {path for path in pages if not path.startswith("/account/") or path == "/account/passphrase"}
    assert {path for path in fixed | pages if f"{path}`" not in told and f"{path}/mcp`" not in told} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_commands_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text("utf-8")
    commands = set(re.findall(r"(?:`|scripts/)ostiary ([a-z][a-z-]*)", text))
    assert commands <= set(COMMANDS)
    scripts = set(re.findall(r"scripts/([a-z]+)\b", text))
    assert {name for name in scripts if not (ROOT / "scripts" / name).exists()} == set()


# A command line as a document shows it, up to where its mark ends, another command begins or a comment.
TYPED = re.compile(r"\bostiary ([a-z][a-z-]*)([^`\n|#]*)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_what_a_document_types_is_taken_by_the_command(document: Path) -> None:
    for name, rest in TYPED.findall(document.read_text("utf-8")):
        if name not in COMMANDS:  # "ostiary puts a door …", or a file's name
            continue
        command = import_module(COMMANDS[name].module).command
        words = rest.split()
        if isinstance(command, click.Group) and words and re.fullmatch(r"[a-z-]+", words[0]):
            assert words[0] in command.commands, f"{named(document)}: ostiary {name} {words[0]}"
            command = command.commands[words[0]]
        known = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        unknown = set(re.findall(r"(?<!\S)--[a-z-]+", rest)) - known - {"--help"}
        assert not unknown, f"{named(document)}: ostiary {name}{rest}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_of_a_document_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def headings(document: Path) -> set[str]:
    """The names by which links lead to the headings of a document."""
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_into_a_document_lead_to_a_heading(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text("utf-8"))
    wrong = [
        (target, anchor)
        for target, anchor in links
        if anchor not in headings(document.parent / target if target else document)
    ]
    assert wrong == []


def test_the_readme_leads_to_every_document() -> None:
    readme, agents = text_of("README.md"), text_of("docs/agents.md")
    assert [
        named(document)
        for document in DOCUMENTS[1:]
        if f"]({named(document)})" not in readme
        and f"]({document.parent.name}/{document.name})" not in agents
    ] == []


ARCHITECTURE = "docs/architecture.md"


def test_the_architecture_is_one_page() -> None:
    assert len(text_of(ARCHITECTURE).split()) <= 1500


def test_files_that_the_architecture_names_exist() -> None:
    text = text_of(ARCHITECTURE)
    named = set(re.findall(r"`((?:auth|server|docs|tests)/[\w/]+(?:\.\w+)?)`", text))
    assert {name for name in named if not (ROOT / name).exists()} == set()
    files = {path.name for top in ("auth", "server", "tests") for path in (ROOT / top).rglob("*.py")}
    assert set(re.findall(r"\b(\w+\.py)\b", text)) <= files


def test_the_architecture_names_every_room_and_every_package_of_auth() -> None:
    named = set(re.findall(r"`(\w+)`", text_of(ARCHITECTURE).partition("## A call")[0]))
    there = {path.parent.name for top in ("auth", "server") for path in (ROOT / top).glob("*/__init__.py")}
    assert len(there) > 30
    assert there <= named


def test_the_picture_in_the_architecture_is_what_the_imports_say() -> None:
    drawn = subprocess.run([ROOT / "scripts" / "rooms"], capture_output=True, text=True, check=True).stdout
    block = text_of(ARCHITECTURE).partition("<!-- scripts/rooms -->\n```text\n")[2]
    assert block.partition("```\n<!-- /scripts/rooms -->")[0] == drawn
