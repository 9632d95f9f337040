"""Who may do what, by the settings: what is refused when they are read, and what they come to (policy_settings.py, tiers.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from msgspec import UNSET
from structlog.testing import capture_logs

from auth.tokens.presented_credentials import digest_of
from auth.values.scopes import Vocabulary
from server.agents.base.catalog import Catalog, CatalogError, Source
from server.calls.rights.tiers import TIER, ServerRules
from server.calls.servers.server_opening import check_words
from server.mcp.messages import Tool, ToolAnnotations
from server.mcp.terms import BadTerms, CallTerms
from server.run import app
from server.settings.policy_settings import ToolConfig
from server.settings.resolved_settings import Resolved, resolve
from server.settings.secret_reference import SecretUnreadable
from server.settings.setting_shapes import ServerConfig
from server.settings.settings_reader import load
from server.transport.admission.credential_settings import access_of
from tests.interaction.agents import agent
from tests.settings.written import problems, server, settled


def read(tmp_path: Path, text: str, **flags: object) -> Resolved:
    file = tmp_path / "ostiary.toml"
    file.write_text(text, "utf-8")
    return resolve(load(file, {}, flags))


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_that_was_written_into_the_settings_is_not_repeated(tmp_path: Path) -> None:
    secret = "s3cret-s3cret-s3cret-s3cret"
    for more in ("", ', scopes = "x"', ', scope = "x"'):
        told = problems(tmp_path, server(f'tokens = [{{ name = "ci", token = "{secret}"{more} }}]'))
        assert told and secret not in str(told)


@pytest.mark.parametrize("kept", ["short", "with space with space with space", "é" * 30])
def test_a_token_that_could_be_tried_out_is_refused_at_the_start(tmp_path: Path, kept: str) -> None:
    (tmp_path / "token").write_text(kept, "utf-8")
    resolved = settled(tmp_path, server(f'tokens = [{{ name = "ci", token = "file:{tmp_path}/token" }}]'))
    with pytest.raises(SecretUnreadable) as caught:
        access_of(resolved.servers)
    assert kept not in str(caught.value) and "the token ci of the server main" in str(caught.value)


def test_two_machines_have_no_token_in_common(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * 24, "utf-8")
    token = f'token = "file:{tmp_path}/token"'
    resolved = settled(tmp_path, server(f'tokens = [{{ name = "a", {token} }}, {{ name = "b", {token} }}]'))
    with pytest.raises(SecretUnreadable, match="another one's too"):
        access_of(resolved.servers)


# ── what they come to ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_servers_own_word_on_who_may_call_counts_before_the_settings_for_all(tmp_path: Path) -> None:
    text = (
        'host = "0.0.0.0"\nissuer = "https://a.example"\n'
        + server('auth = "none"')
        + server().replace("main", "b")
    )
    resolved = settled(tmp_path, text)
    assert resolved.open_servers == {"main"} and resolved.needs_login
    text = 'auth = "none"\n' + server() + server('auth = "oauth"').replace("main", "b")
    resolved = settled(tmp_path, text)
    assert resolved.open_servers == {"main"} and resolved.needs_login
    assert not settled(tmp_path, 'auth = "none"\n' + server()).needs_login


def test_a_server_that_is_open_to_the_network_is_named_at_the_start(tmp_path: Path) -> None:
    text = server('auth = "none"') + server().replace("main", "b")

    def warned(**flags: object) -> list[dict[str, Any]]:
        services = SimpleNamespace(resolved=read(tmp_path, text, **flags), log=structlog.get_logger())
        with capture_logs() as lines:
            app._warn_of_open_servers(services)  # type: ignore[arg-type]
        return [dict(line) for line in lines]

    assert warned() == []
    assert warned(issuer="https://a.example") == [
        {"event": "server.open_to_the_network", "log_level": "warning", "server": "main", "path": "/mcp"}
    ]


def test_the_vocabulary_has_the_words_of_the_settings_and_publishes_money_only_where_it_moves(
    tmp_path: Path,
) -> None:
    billing = '[[scope]]\nname = "billing:read"\ndescription = "See the bills"\n'
    without, with_money = settled(tmp_path, billing + server()), settled(tmp_path, server("financial = true"))
    assert without.scopes.words("billing:read") == "See the bills"
    assert without.scopes.listed == ("mcp", "mcp:tools", "mcp:resources", "billing:read")
    assert without.scopes.ordinary == ("mcp", "billing:read")
    assert "financial" in with_money.scopes.listed
    assert with_money.scopes.ordinary == ("mcp",)  # asked for by its own name alone


def test_a_server_takes_what_its_settings_say(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * 24 + "\n", "utf-8")
    lines = f'accepts = ["basic"]\ntokens = [{{ name = "ci", token = "file:{tmp_path}/token", tools = "readonly" }}]'
    access = access_of(settled(tmp_path, server(lines)).servers)["main"]
    assert (access.login, access.api_key, access.basic) == (False, False, True)
    who = access.tokens[digest_of("x" * 24)]
    assert (who.subject, who.tools, who.scopes) == ("token:main:ci", "readonly", {"mcp"})


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('old_names = { "a.*" = "a" }', "old_names.a.*"),
        ('old_names = { "a" = "a*" }', "old_names.a"),
        ('old_names = { "*.*" = "*__*" }', "old_names.*.*"),
        ('old_names = { "a" = "a" }', "old_names.a"),
        ("old_names_until = 2027-01-31", "old_names_until"),
    ],
)
def test_old_names_that_lead_nowhere_are_refused(tmp_path: Path, lines: str, key: str) -> None:
    (problem,) = problems(tmp_path, server(lines))
    assert problem.startswith(f"server[1].{key}: ")


def test_selections_of_the_settings_name_only_what_there_is() -> None:
    settings = ServerConfig(default_tools="all,-delet", groups={"search": ("find*",)})
    with pytest.raises(CatalogError, match="main: default_tools selects delet, which is no tool or group"):
        check_words(settings, {"delete"})
    with pytest.raises(CatalogError, match="main: old_names leads to delet, which no agent offers"):
        check_words(ServerConfig(old_names={"remove": "delet", "a.*": "b__*"}), {"delete"})
    check_words(ServerConfig(default_tools="search,-delete", groups={"search": ("find*",)}), {"delete"})


# ── tiers ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tool(hints: ToolAnnotations | None = None, meta: Mapping[str, Any] | None = None) -> Tool:
    return Tool(
        name="t",
        input_schema={"type": "object"},
        annotations=UNSET if hints is None else hints,
        meta=UNSET if meta is None else meta,
    )


READS, WRITES, PAYS = (frozenset({name}) for name in ("mcp:tools:read", "mcp:tools:write", "financial"))
BASE = CallTerms(deadline_seconds=7, quick=True)


@pytest.mark.parametrize(
    ("what", "rules", "needed"),
    [
        (tool(), ServerRules(), WRITES),
        (tool(ToolAnnotations(read_only_hint=True)), ServerRules(), READS),
        (tool(ToolAnnotations(read_only_hint=False)), ServerRules(unclassified="financial"), WRITES),
        (tool(ToolAnnotations(title="T")), ServerRules(unclassified="financial"), None),
        (tool(), ServerRules(unclassified="financial"), None),
        (tool(), ServerRules(unclassified="financial", financial=True), PAYS),
        (tool(meta={TIER: "financial"}), ServerRules(), None),
        (tool(meta={TIER: "financial"}), ServerRules(financial=True), PAYS),
        (tool(ToolAnnotations(read_only_hint=True), {TIER: "write"}), ServerRules(), WRITES),
        (tool(meta={TIER: "financial"}), ServerRules(tools={"t": ToolConfig(tier="read")}), READS),
        (tool(), ServerRules(tools={"t": ToolConfig(tier="financial")}), None),
        (tool(), ServerRules(tools={"t": ToolConfig(enabled=False)}), None),
        (tool(), ServerRules(tools={"t": ToolConfig(scope="billing:read")}), WRITES | {"billing:read"}),
        (tool(), ServerRules(tools={"other": ToolConfig(enabled=False)}), WRITES),
    ],
)
def test_the_tier_of_a_tool_and_what_a_call_of_it_needs(
    what: Tool, rules: ServerRules, needed: frozenset[str] | None
) -> None:
    found = rules.terms(what, BASE)
    assert (None if found is None else found.scopes) == needed
    assert found is None or (found.quick, found.deadline_seconds) == (True, 7)


def test_a_tier_that_there_is_not_is_the_authors_mistake() -> None:
    with pytest.raises(BadTerms, match="read, write or financial"):
        ServerRules().terms(tool(meta={TIER: "cheap"}), BASE)
    source: Source = agent(listed={"t": tool(meta={TIER: "cheap"})}, t=None)  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match="agent: the tool t: io"):
        Catalog([source], ServerRules())


def test_what_the_settings_say_of_a_tool_that_nobody_has_is_a_mistake_at_the_start() -> None:
    source: Source = agent(listed={"t": tool()}, t=None)  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match="the settings name the tool delte"):
        Catalog([source], ServerRules(tools={"delte": ToolConfig(enabled=False)}))
    catalog = Catalog([source], ServerRules(tools={"t": ToolConfig(enabled=False)}))
    assert (catalog.get("t"), catalog.named) == (None, {"t"})


def test_an_installation_without_words_of_its_own_has_the_standard_ones(tmp_path: Path) -> None:
    assert settled(tmp_path, server()).scopes.names == Vocabulary().names
