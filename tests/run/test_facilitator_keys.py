"""Keys of facilitators, from the settings to the first request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from server.calls.servers.server_opening import CannotStart
from server.run.sellers import open_money
from server.settings.resolved_settings import resolve
from server.settings.settings_reader import load

SETTINGS = """
[payments]
pay_to = "0x52908400098527886E0F7030069857D2E4169EE7"
networks = ["base-sepolia"]
[[payments.facilitator]]
url = "https://f.example/pay"
key_id = "env:KEY_ID"
key_secret = "file:{file}"
"""


def opened(tmp_path: Path, secret: str) -> Any:
    (tmp_path / "facilitator.key").write_text(secret, "utf-8")
    settings = tmp_path / "ostiary.toml"
    text = SETTINGS.format(file=tmp_path / "facilitator.key")
    settings.write_text(text, "utf-8")
    nobody: Any = None
    return open_money(
        resolve(load(settings, {})),
        nobody,
        lambda purpose: bytes(32),
        nobody,
        boot_id="boot",
        issuer="https://shop.example",
        signing_key=nobody,
    )


async def test_a_key_that_the_settings_refer_to_signs_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_ID", "key-7")
    key = ec.generate_private_key(ec.SECP256R1())
    money = opened(tmp_path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    (client,) = money.facilitators._clients
    heads = [client._verify.lines(), client._verify.lines()]
    assert all(b"\r\nAuthorization: Bearer ey" in head for head in heads)
    assert heads[0] != heads[1]
    await money.aclose()


def test_a_file_that_holds_no_key_is_named_at_the_start_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_ID", "key-7")
    with pytest.raises(CannotStart) as raised:
        opened(tmp_path, "s3cret")
    said = str(raised.value)
    assert "facilitator.key of https://f.example/pay is neither" in said
    assert "s3cret" not in said
