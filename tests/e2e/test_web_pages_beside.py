"""A web page in the owner's browser that asks this server for all it can: the owner's own terminal is none the worse for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import httpx2
import pytest
from programs import SOURCE, WAIT_SECONDS, Program

pytestmark = pytest.mark.slow

PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
REGISTRATION = {
    "client_name": "x" * 80,
    "redirect_uris": ["http://127.0.0.1:1234/cb"],
    "token_endpoint_auth_method": "none",
}
REFUSED = {"grant_type": "refresh_token", "client_id": "ostiary-cli", "refresh_token": "rt1.x"}


def test_the_owner_logs_in_while_a_page_asks_for_codes_registers_and_is_refused(home: Path) -> None:
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:
        with httpx2.Client(base_url=server.url, headers=PAGE, trust_env=False, timeout=WAIT_SECONDS) as page:
            asked = {"client_id": "ostiary-cli"}
            codes = Counter(page.post("/device_authorization", data=asked).status_code for _ in range(40))
            made = Counter(page.post("/register", json=REGISTRATION).status_code for _ in range(40))
            tried = Counter(page.post("/token", data=REFUSED).status_code for _ in range(60))
        assert codes == {200: 5, 429: 35}
        # What it was refused before counts: a page leaves so many refusals a minute, whatever they are of.
        assert made[201] <= 20
        assert tried[400] <= 30
        assert tried[429] >= 30
        program.log_in(server)
        assert program.run("call", server.endpoint, "echo", "text=hello").stdout.strip() == "hello"
