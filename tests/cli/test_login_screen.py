"""What `ostiary login` draws for servers that a test cannot be: public ones, and ones with less to say."""

from __future__ import annotations

import pytest

from server.cli.use import login_screen
from server.lib.oauth_client.device_authorization import DeviceCode
from server.lib.secret import Secret

LINK = "https://agent.example.org/device?user_code=WDJB-MJHT"


def code(complete: str | None = LINK) -> DeviceCode:
    return DeviceCode(
        device_code=Secret("dc-secret"),
        user_code="WDJB-MJHT",
        verification_uri="https://agent.example.org/device",
        verification_uri_complete=complete,
        expires_at=600_000,
        interval=5,
    )


def drawn(capsys: pytest.CaptureFixture[str], shown: DeviceCode, *, qr: bool | None) -> str:
    login_screen.show(shown, local=False, qr=qr)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "dc-secret" not in captured.err
    return captured.err


def test_a_public_server_is_approved_in_a_browser_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert drawn(capsys, code(), qr=None).endswith(
        f"\n  in a browser   {LINK}\n"
        "  or by hand     https://agent.example.org/device and type the code\n"
        "  at the server  ostiary approve WDJB-MJHT\n\n"
    )


def test_without_a_complete_link_the_code_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert drawn(capsys, code(None), qr=None).endswith(
        "  in a browser   https://agent.example.org/device and type the code\n"
        "  at the server  ostiary approve WDJB-MJHT\n\n"
    )


def test_the_qr_code_is_square_and_holds_a_quiet_zone(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line[4:] for line in drawn(capsys, code(), qr=True).splitlines() if "▀" in line or "█" in line]
    assert {len(line) for line in lines} == {len(lines) * 2 - 1}
    assert lines[0] == "█" * len(lines[0])
    assert all(line.startswith("██") and line.endswith("██") for line in lines[:-1])
