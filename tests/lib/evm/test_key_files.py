"""Where keys are kept: made so that nobody else reads them, and refused where somebody else could."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from server.lib.evm.key_files import KeyUnusable, load_key, make_key_file

SECRET = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
ADDRESS = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"


def kept(path: Path, text: str = f"0x{SECRET}\n", mode: int = 0o600) -> str:
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return f"file:{path}"


def refusal(reference: str, environ: dict[str, str] | None = None) -> KeyUnusable:
    with pytest.raises(KeyUnusable) as caught:
        load_key(reference, environ or {})
    said = f"{caught.value} {caught.value.hint} {caught.value!r}"
    assert SECRET not in said.lower() and SECRET[:12] not in said.lower()
    return caught.value


@pytest.mark.parametrize("text", [SECRET, f"0x{SECRET}", f"0x{SECRET.upper()}\n", f"  0x{SECRET}\r\n"])
def test_a_key_is_read_from_a_file_or_a_variable(text: str, tmp_path: Path) -> None:
    assert load_key(kept(tmp_path / "key", text)).address == ADDRESS
    assert load_key("env:KEY", {"KEY": text}).address == ADDRESS


def test_a_new_key_is_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "wallet.key"
    before = os.umask(0)
    try:
        made = make_key_file(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert load_key(f"file:{path}").address == made.address
    assert make_key_file(tmp_path / "other").address != made.address


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "wallet.key"
    made = make_key_file(path)
    with pytest.raises(KeyUnusable, match="already"):
        make_key_file(path)
    assert load_key(f"file:{path}").address == made.address
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(KeyUnusable):
        make_key_file(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_or_change_is_refused(mode: int, tmp_path: Path) -> None:
    found = refusal(kept(tmp_path / "key", mode=mode))
    assert "read or changed by others" in str(found)
    assert found.hint == f"chmod 600 {tmp_path / 'key'}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    reference = kept(tmp_path / "key")
    os.chown(tmp_path / "key", 12345, -1)
    assert "belongs to another user" in str(refusal(reference))


def test_what_is_no_file_or_no_key_is_refused_with_a_sentence(tmp_path: Path) -> None:
    assert "ostiary wallet new" in str(refusal(f"file:{tmp_path / 'none'}").hint)
    assert "no plain file" in str(refusal(f"file:{tmp_path}"))
    os.mkfifo(tmp_path / "pipe")
    assert "no plain file" in str(refusal(f"file:{tmp_path / 'pipe'}"))
    for text in ("", "0x", SECRET[:-1], f"{SECRET}00", "0x" + "0" * 64, "0x" + "f" * 64, "x" * 10_000):
        assert "no private key" in str(refusal(kept(tmp_path / "bad", text)))
    assert "is not set" in str(refusal("env:KEY"))
    assert "no private key" in str(refusal("env:KEY", {"KEY": SECRET[:-2]}))


@pytest.mark.parametrize(
    "reference", [f"0x{SECRET}", SECRET, f"0x{SECRET}:x", "env:", "file:", "", "vault:x"]
)
def test_a_key_in_clear_is_refused_and_not_repeated(reference: str) -> None:
    assert "never in clear" in str(refusal(reference))
