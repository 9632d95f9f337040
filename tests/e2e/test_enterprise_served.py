"""Enterprise-managed authorization at a running server: the official SDKs bring the word of a provider on loopback, and call a tool."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Program, Server, claim_in_browser, needed

from tests.auth.upstream_fakes import FakeProvider, provided

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
THERE = "editor-there"  # how the provider calls the program


class Running(NamedTuple):
    program: Program
    server: Server
    idp: FakeProvider
    editor: dict[str, Any]

    def bring(self, which: str) -> subprocess.CompletedProcess[str]:
        """One of the SDKs, to its end."""
        python = ROOT / ".venvs" / "peers" / "bin" / "python"
        command: dict[str, tuple[Path, Path]] = {
            "python": (python, PEERS / "python_sdk_enterprise.py"),
            "typescript": (NODE_BIN / "node", PEERS / "ts_enterprise.mjs"),
        }
        program, script = command[which]
        return subprocess.run(
            (
                str(needed(program, "scripts/peers")),
                str(script),
                self.server.endpoint,
                self.server.url,
                self.editor["id"],
                self.idp.origin,
                THERE,
            ),
            cwd=PEERS,
            env=self.program.environment(
                ID_TOKEN=self.idp.id_token(THERE),
                CLIENT_SECRET=self.editor["client_secret"],
                NODE_NO_WARNINGS="1",
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )


@pytest.fixture
def running(home: Path) -> Iterator[Running]:
    with provided(lambda: time.time_ns() // 1_000_000) as idp:
        idp.discovery = {
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "identity_chaining_requested_token_types_supported": ["urn:ietf:params:oauth:token-type:id-jag"],
        }
        settings = home / "ostiary.toml"
        settings.write_text(
            f'[[upstream]]\nname = "work"\nkind = "oidc"\nlabel = "Example Ltd"\nissuer = "{idp.origin}"\n'
            'client_id = "ostiary"\nassertions = true\n'
            'allow = [{ subject = "sub-of-ann", user = "olivia" }]\n',
            "utf-8",
        )
        program = Program(command=SOURCE, home=home)
        with program.serving("--config", str(settings)) as server:
            claim_in_browser(program.at_machine("claim")["url"], "four calm herons wading")
            editor = program.at_machine("clients", "add", "Editor", "--secret", "--grant", "jwt-bearer")
            idp.programs[THERE] = editor["id"]
            yield Running(program, server, idp, editor)


@pytest.mark.parametrize("which", ["python", "typescript"])
def test_an_official_sdk_brings_a_providers_word_and_calls_a_tool(running: Running, which: str) -> None:
    program, server, idp, editor = running
    done = running.bring(which)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["text"] == "vouched for"
    assert found["refreshes"] is False
    assert [each["resource"] for each in found["asked"]] == [server.endpoint]
    # The one names a scope itself, the other takes what the server's challenge named.
    assert found["scope"] == {"python": "mcp:tools", "typescript": "mcp"}[which]

    (login,) = program.at_machine("sessions")
    assert (login["how"], login["client_id"], login["user"]) == ("assertion", editor["id"], "olivia")
    assert login["approved_by"] == "idp:work"
    shown = program.run("sessions", "--data-dir", str(program.data_dir)).stdout
    assert "by provider" in shown

    # An ended login ends what came of it; the provider says whether there is another. A stranger gets none.
    program.at_machine("revoke", login["id"])
    idp.subject = "somebody else"
    refused = running.bring(which)
    assert refused.returncode != 0
    assert "invalid_grant" in refused.stderr or "lets nobody in" in refused.stderr
    assert program.at_machine("sessions") == []
    reasons = [row["reason"] for row in program.at_machine("audit") if row["event"] == "assertion.redeemed"]
    assert set(reasons) == {"work somebody else: not listed", "work sub-of-ann"}
    for secret in (editor["client_secret"], *idp.tokens, *(each["jti"] for each in idp.vouched)):
        assert secret not in server.said()


def test_the_metadata_tells_programs_of_it(running: Running) -> None:
    document = httpx2.get(
        running.server.url + "/.well-known/oauth-authorization-server",
        trust_env=False,
        timeout=WAIT_SECONDS,
    ).json()
    assert document["authorization_grant_profiles_supported"] == [
        "urn:ietf:params:oauth:grant-profile:id-jag"
    ]
    listed = running.program.run("clients", "list", "--data-dir", str(running.program.data_dir)).stdout
    assert "login by a provider's word" in listed
