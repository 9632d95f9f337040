"""The recipes of docs/deploy.md for proxies: taken from the document as they stand, but for ports and files, and run."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pebble import NAME
from programs import ROOT, SOURCE, WAIT_SECONDS, Program, until

from tests.free_ports import free_port
from tests.made_certificates import trusting, write_certificate

pytestmark = [pytest.mark.peers, pytest.mark.slow]

DEPLOY = (ROOT / "docs" / "deploy.md").read_text("utf-8")
BEHIND = DEPLOY.partition("## Behind a proxy")[2].partition("\n## ")[0]


def recipe(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", BEHIND, re.DOTALL)
    return found


@contextmanager
def behind(home: Path, port: int) -> Generator[None]:
    """The server with the settings of the recipe."""
    (home / "ostiary.toml").write_text(f"port = {port}\n" + recipe("toml"), "utf-8")
    program = Program(command=SOURCE, home=home)
    with program.starting("serve", "--data-dir", str(program.data_dir)) as server:
        server.await_words(rf"Listening on https://{re.escape(NAME)}")
        yield


@contextmanager
def proxy(command: list[str], port: int, log: Path) -> Generator[None]:
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        try:

            def answers() -> bool | None:
                assert process.poll() is None, log.read_text("utf-8", "replace")
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                except OSError:
                    return None
                return True

            until("the proxy", answers)
            yield
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)


def ask(port: int, head: str, context: ssl.SSLContext | None, body: bytes = b"") -> tuple[int, str]:
    lines = f"{head} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as sock:
        wire = sock if context is None else context.wrap_socket(sock, server_hostname=NAME)
        wire.sendall(
            f"{lines}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n".encode()
            + body
        )
        answer = b""
        while more := wire.recv(65536):
            answer += more
        if context is not None:
            wire.close()
    return int(answer.split()[1]), answer.decode()


def serves_as_the_public_address(port: int, context: ssl.SSLContext | None) -> None:
    status, refused = ask(port, "POST /mcp", context, b"{}")
    assert status == 401
    metadata = f"https://{NAME}/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{metadata}"' in refused
    status, document = ask(port, "GET /.well-known/oauth-protected-resource/mcp", context)
    assert status == 200
    told = json.loads(re.search(r"\{.*\}", document, re.DOTALL)[0])  # type: ignore[index]
    assert told["resource"] == f"https://{NAME}/mcp"
    assert ask(port, "GET /signin", context)[0] == 200


def test_nginx_as_the_document_has_it(home: Path) -> None:
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert nginx, "nginx is missing: run scripts/peers system"
    secure, plain, inner = (free_port() for _ in range(3))
    certificate, key = write_certificate(home, "nginx", host=NAME)
    text = recipe("nginx")
    for before, after in (
        ("listen 443 ssl", f"listen 127.0.0.1:{secure} ssl"),
        ("    listen [::]:443 ssl;\n", ""),
        ("listen 80", f"listen 127.0.0.1:{plain}"),
        ("    listen [::]:80;\n", ""),
        (f"/etc/letsencrypt/live/{NAME}/fullchain.pem", str(certificate)),
        (f"/etc/letsencrypt/live/{NAME}/privkey.pem", str(key)),
        ("127.0.0.1:8420", f"127.0.0.1:{inner}"),
    ):
        assert before in text, before
        text = text.replace(before, after)
    folders = "".join(
        f"{name}_temp_path {home}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = home / "nginx.conf"
    config.write_text(
        f"daemon off; pid {home}/nginx.pid; error_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}{text}}}\n",
        "utf-8",
    )
    command = [nginx, "-p", str(home), "-e", "stderr", "-c", str(config)]
    subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=WAIT_SECONDS)
    with behind(home, inner), proxy(command, secure, home / "nginx-said"):
        serves_as_the_public_address(secure, trusting(certificate))
        status, led = ask(plain, "GET /mcp?x=1", None)
        assert status == 308
        assert f"Location: https://{NAME}/mcp?x=1" in led


def test_caddy_as_the_document_has_it(home: Path) -> None:
    caddy = shutil.which("caddy")
    assert caddy, "caddy is missing: run scripts/peers system"
    outer, inner = free_port(), free_port()
    certificate, key = write_certificate(home, "caddy", host=NAME)
    text = recipe("caddyfile")
    # Its certificate would come from an authority.
    assert text.startswith(f"{NAME} {{\n")
    text = text.replace(f"{NAME} {{\n", f"https://{NAME}:{outer} {{\n\ttls {certificate} {key}\n")
    assert "127.0.0.1:8420" in text
    config = home / "Caddyfile"
    config.write_text(
        "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
        + text.replace("127.0.0.1:8420", f"127.0.0.1:{inner}"),
        "utf-8",
    )
    command = ["env", f"HOME={home}", caddy, "run", "--config", str(config), "--adapter", "caddyfile"]
    with behind(home, inner), proxy(command, outer, home / "caddy-said"):
        serves_as_the_public_address(outer, trusting(certificate))
