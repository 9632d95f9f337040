"""Programs without a person: machines of the official Python SDK, a gateway that asks about tokens, and programs that register themselves.

All of it with the commands and over the sockets that people and programs use.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from programs import ROOT, WAIT_SECONDS, House, Program, Server, needed

pytestmark = [pytest.mark.slow]

CLIENT = ROOT / "tests" / "peers" / "python_sdk_machine.py"


def machine(program: Program, server: Server, client_id: str, kind: str, credential: str) -> Any:
    python = needed(ROOT / ".venvs" / "peers" / "bin" / "python", "scripts/peers")
    done = subprocess.run(
        (str(python), str(CLIENT), server.endpoint, server.url, client_id, kind),
        env=program.environment(),
        input=credential,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def logins_of(program: Program, client: dict[str, Any]) -> list[dict[str, Any]]:
    return [login for login in program.at_machine("sessions") if login["client_id"] == client["id"]]


@pytest.mark.peers
def test_the_python_sdk_logs_in_by_itself_with_a_secret_and_with_a_signature(house: House) -> None:
    program, server = house.program, house.server
    key = ec.generate_private_key(ec.SECP256R1())
    public, private = program.home / "public.pem", program.home / "private.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    grant = ("--grant", "client_credentials")
    refused = program.run(
        "clients",
        "add",
        "signer",
        *grant,
        "--public-key",
        str(private),
        "--data-dir",
        str(program.data_dir),
        code=1,
    )
    assert "holds a private key" in refused.stderr

    job = program.at_machine("clients", "add", "nightly job", *grant, "--secret")
    signer = program.at_machine("clients", "add", "signer", *grant, "--public-key", str(public))
    assert "echo" in machine(program, server, job["id"], "secret", job["client_secret"])["tools"]
    assert "echo" in machine(program, server, signer["id"], "key", private.read_text())["tools"]
    for client in (job, signer):
        (login,) = logins_of(program, client)
        assert login["how"] == "client_credentials"


def test_a_gateway_learns_what_a_machines_token_is_worth_until_the_login_is_revoked(
    house: House,
) -> None:
    program, server = house.program, house.server
    job = program.at_machine("clients", "add", "job", "--grant", "client_credentials", "--secret")
    gateway = program.at_machine("clients", "add", "gateway", "--introspect", "--secret")
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=WAIT_SECONDS) as http:
        answer = http.post(
            "/token", data={"grant_type": "client_credentials"}, auth=(job["id"], job["client_secret"])
        )
        token = answer.json()["access_token"]

        def worth(client: dict[str, Any]) -> httpx2.Response:
            return http.post(
                "/introspect", data={"token": token}, auth=(client["id"], client["client_secret"])
            )

        told = worth(gateway).json()
        assert (told["active"], told["sub"]) == (True, f"client:{job['id']}")
        assert worth(job).json()["error"] == "unauthorized_client"
        (login,) = logins_of(program, job)
        where = ("--data-dir", str(program.data_dir))
        asked = program.run("clients", "remove", job["id"], *where, code=2)
        assert f"remove {job['id']}, with 1 login" in asked.stderr, "its logins would end"
        assert logins_of(program, job) == [login]
        program.at_machine("revoke", login["id"])
        assert worth(gateway).json() == {"active": False}

        fresh = program.at_machine("clients", "rotate-secret", gateway["id"])
        refused = worth(gateway)
        assert (refused.status_code, refused.headers["www-authenticate"].split()[0]) == (401, "Basic")
        assert worth(fresh).json() == {"active": False}


def test_a_program_registers_itself_is_listed_and_is_removed(house: House) -> None:
    program, server = house.program, house.server
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=WAIT_SECONDS) as http:
        body = {
            "client_name": "Fine\u202e program",
            "redirect_uris": ["http://localhost:1/callback", "cursor://anysphere.cursor-mcp/oauth/callback"],
            "token_endpoint_auth_method": "none",
        }
        # A page of any origin may: nothing here is taken from a cookie.
        page = {"origin": "https://app.example.org"}
        preflight = http.options("/register", headers={**page, "access-control-request-method": "POST"})
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, "*")
        answer = http.post("/register", json=body, headers=page)
        assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
        assert answer.headers["access-control-allow-origin"] == "*"
        told = answer.json()
        bearer = {"authorization": f"Bearer {told['registration_access_token']}"}
        assert http.get(told["registration_client_uri"], headers=bearer).json() == told
        put = http.put(
            told["registration_client_uri"], headers=bearer, json={**body, "client_id": told["client_id"]}
        )
        assert put.status_code == 200

        shown = program.run("clients", "list", "--data-dir", str(program.data_dir)).stdout
        assert f"{told['client_id']}  Fine program" in shown
        assert "registered itself from 127.0.0.1" in shown
        assert "sends browsers back to localhost, cursor:" in shown
        listed = {client["id"]: client for client in program.at_machine("clients", "list")}
        assert listed[told["client_id"]]["kind"] == "dynamic"

        program.at_machine("clients", "remove", told["client_id"])
        assert http.get(told["registration_client_uri"], headers=bearer).status_code == 401
        assert http.post("/register", content=b"x" * 70_000).status_code == 413
        assert (
            http.post("/register", content=b"{}", headers={"content-type": "text/plain"}).status_code == 400
        )
    for secret in (told["registration_access_token"],):
        assert secret not in "".join(program.said)
