from __future__ import annotations

from pathlib import Path

import pytest

from server.agents.chat.chat_endpoint import AgentEndpoint, EndpointConfig
from server.lib.secret import Secret
from server.settings.header_settings import read_headers
from server.settings.secret_reference import SecretUnreadable


def test_header_values_are_read_from_where_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_KEY", "from-env")
    (tmp_path / "key").write_text("from-file\n")
    found = read_headers(
        {
            "a": "env:AGENT_KEY",
            "b": f"file:{tmp_path}/key",
            "c": "Bearer env:AGENT_KEY",
            "d": "as it is",
            "e": "x:y",
        }
    )
    assert {name: value.reveal() for name, value in found.items()} == {
        "a": "from-env",
        "b": "from-file",
        "c": "Bearer from-env",
        "d": "as it is",
        "e": "x:y",
    }
    assert "from" not in repr(found)


def test_a_reference_to_nothing_is_named_and_no_value_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(SecretUnreadable, match="NO_SUCH_KEY"):
        read_headers({"authorization": "Bearer env:NO_SUCH_KEY"})


@pytest.mark.parametrize("value", ["two\r\nlines", "schlüssel", "", " padded"])
def test_a_secret_that_no_header_can_carry_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(SecretUnreadable) as raised:
        AgentEndpoint("http://h/", EndpointConfig(), {"x-key": Secret(value)})
    assert "x-key" in str(raised.value)
    assert value == "" or value not in str(raised.value)


def test_credentials_are_blotted_out_before_a_text_is_cut() -> None:
    endpoint = AgentEndpoint("http://h/", EndpointConfig(), {"x-key": Secret("sk-0123456789")})
    shown = endpoint.clean("y" * 195 + "sk-0123456789 and more")
    assert shown == "y" * 195 + "*** a"
