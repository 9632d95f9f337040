"""Settings as somebody writes them, for the tests of what they come to and of what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from server.settings.resolved_settings import Resolved, resolve
from server.settings.settings_reader import ConfigInvalid, load

MINE: Final = "0x52908400098527886E0F7030069857D2E4169EE7"
TOKEN: Final = "0xde709f2102306220921060314715629080e2fb77"
FACILITATOR: Final = '[[payments.facilitator]]\nurl = "https://facilitator.example"\n'
PAID: Final = f'[payments]\npay_to = "{MINE}"\nnetworks = ["base-sepolia"]\n{FACILITATOR}'
DOMAIN: Final = 'domain = ["agent.example.org", "mcp.example.org"]\naccept_terms = true\n'
GITHUB: Final = (
    '[[upstream]]\nname = "github"\nkind = "github"\nclient_id = "x"\nclient_secret = "env:GITHUB_SECRET"\n'
)
OIDC: Final = (
    '[[upstream]]\nname = "work"\nkind = "oidc"\nclient_id = "x"\nissuer = "https://login.example.org"\n'
)
ALLOW: Final = 'allow = [{ subject = "583231", user = "alice" }]\n'
OTLP: Final = '[telemetry]\notlp = "http://x:1"\n'


def server(lines: str = "", tables: str = "", name: str = "main") -> str:
    return f'[[server]]\nname = "{name}"\n{lines}\n{tables}\n[[server.agent]]\nkind = "demo"\n'


def tool(lines: str) -> str:
    return server("", f"[server.tools.echo]\n{lines}")


def settled(folder: Path, text: str, **environment: str) -> Resolved:
    """Return what `text`, as the file of settings, comes to."""
    file = folder / "ostiary.toml"
    file.write_text(text, "utf-8")
    return resolve(load(file, environment))


def problems(folder: Path, text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        settled(folder, text, **environment)
    return [str(problem) for problem in caught.value.problems]
