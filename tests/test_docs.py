"""The documents against the code: settings that they show load, files that they name exist, tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from auth import metadata
from auth.endpoints import FORMS
from auth.entry import ENDPOINTS as PAGES
from server.cli import COMMANDS
from server.config import AGENT_KINDS, agent_shape, load
from server.resolve import resolve

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


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
def test_settings_that_a_document_shows_load_and_resolve(tmp_path: Path, block: str) -> None:
    file = tmp_path / "ostiary.toml"
    file.write_text(block, "utf-8")
    resolved = resolve(load(file, {}))
    assert resolved.servers[0].agents


def test_the_documents_show_settings_for_every_kind_of_agent() -> None:
    shown = set(
        re.findall(r'^kind = "(\w+)"', "\n".join(str(block.values[0]) for block in SETTINGS), re.MULTILINE)
    )
    assert shown == set(AGENT_KINDS)


@pytest.mark.parametrize("kind", list(AGENT_KINDS))
def test_every_setting_of_an_agent_is_explained_with_its_default(kind: str) -> None:
    # A kind's own section comes before what several share.
    sections = re.split(r"^## ", text_of("docs/agents.md"), flags=re.MULTILINE)
    own = [text for text in sections if text.startswith(f'`kind = "{kind}"`')]
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


def test_the_readme_names_every_path_that_is_served() -> None:
    readme = text_of("README.md")
    fixed = {
        metadata.AUTHORIZATION_SERVER,
        metadata.PROTECTED_RESOURCE,
        metadata.JWKS,
        metadata.AUTHORIZE,
        *FORMS,
    }
    # What only a page leads to need not be known to anybody.
    pages = {path.replace("{token}", "…") for path in PAGES} - {"/welcome", "/device/decide"}
    assert {
        path for path in fixed | pages if f"{path}`" not in readme and f"{path}/mcp`" not in readme
    } == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_commands_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text("utf-8")
    commands = set(re.findall(r"(?:`|scripts/)ostiary ([a-z]+)", text))
    assert commands <= set(COMMANDS)
    scripts = set(re.findall(r"scripts/([a-z]+)\b", text))
    assert {name for name in scripts if not (ROOT / "scripts" / name).exists()} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_of_a_document_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_files_that_the_architecture_names_exist() -> None:
    files = {path.name for top in ("auth", "server", "tests") for path in (ROOT / top).rglob("*.py")}
    assert set(re.findall(r"\b(\w+\.py)\b", text_of("docs/architecture.md"))) <= files


def test_the_layout_has_every_part_of_the_two_packages() -> None:
    layout = text_of("docs/architecture.md").partition("## One request")[0]
    # Small parts that say what they are by their names, and are of use to several of those shown.
    left_out = {
        "__init__.py",
        "__main__.py",
        "authorize.py",
        "db.py",
        "encode.py",
        "entropy.py",
        "network.py",
        "wire.py",
    }
    parts = {
        path.name + ("/" if path.is_dir() else "")
        for top in ("auth", "server")
        for path in (ROOT / top).iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))
    }
    assert {part for part in parts - left_out if part not in layout} == set()
