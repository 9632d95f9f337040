"""The pictures at the top of the README are made from the program as it is: the script that makes them still finds everything that it looks for."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from programs import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_recording_can_be_made_again_and_shows_a_login_and_a_call(tmp_path: Path) -> None:
    made = subprocess.run(
        (ROOT / "scripts/record", "--out", tmp_path), capture_output=True, text=True, timeout=300, check=False
    )
    assert made.returncode == 0, made.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in (ROOT / "docs/pictures").iterdir()
    }
    film = (tmp_path / "terminal.svg").read_text("utf-8")
    lines = {"".join(text.itertext()) for text in ElementTree.fromstring(film).iter(f"{SVG}text")}
    for shown in (
        "$ostiary serve restaurant.py",
        "$ostiary login http://127.0.0.1:8420/mcp",
        "$ostiary call book guests=3",
    ):
        assert any(shown in line.replace("$ ", "$") for line in lines), shown
    assert "3 guests on 24 December" in lines
    # Only the code and the names that everybody may know.
    assert set(re.findall(r"[A-Z]{4}-[A-Z]{4}", film)) == {"WDJB-MJHT"}
    assert set(re.findall(r"127\.0\.0\.1:(\d{4,})", film)) == {"8420"}
    assert not re.search(rf"(?<![\w-]){re.escape(socket.gethostname())}(?![\w-])", film)
    assert str(ROOT) not in film
