"""`ostiary wallet`, and `ostiary call --pay` against a shop that checks what it is paid with."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest
import trio
from shell import Terminal
from test_call_questions import Restaurant

from server.client.client_errors import TokenFileError
from server.client.client_wallet import WalletError, WalletFile, WalletSettings
from tests.client.fake_server import FakeServer, Response, Seen, as_json
from tests.payments.buyer.shop import KEY, PAYEE, PAYER, TRANSACTION, Shop, as_result

ALLOWED = ("--per-call", "0.05", "--per-day", "0.1", "--network", "base-sepolia", "--payee", "any")


async def wallet(shell: Terminal, *more: str) -> None:
    path = shell.home / "key"
    path.write_text(KEY)
    path.chmod(0o600)
    done = await shell.run("wallet", "allow", "--key", f"file:{path}", *ALLOWED, *more)
    assert done.code == 0, done.stderr


def sells(fake: FakeServer, shop: Shop) -> list[bool]:
    """The tool `echo` of the fake costs money. What is put into the list breaks off the next answers to payments."""
    losing: list[bool] = []

    async def mcp(request: Seen) -> Response:
        message = request.message
        params = message.get("params", {})
        if message.get("method") != "tools/call" or params["name"] != "echo":
            return await fake.usual(request)
        payment = params["_meta"].get("x402/payment")
        if payment is None:
            return as_json({"jsonrpc": "2.0", "id": message["id"], "result": as_result(shop.challenge)})
        receipt, refusal = shop.take(payment)
        if receipt is None:
            return as_json({"jsonrpc": "2.0", "id": message["id"], "result": as_result(refusal)})
        if losing and losing.pop():
            return Response(break_off=True)
        response = await fake.usual(request)
        answer = json.loads(response.body)
        answer["result"]["_meta"] = {"x402/payment-response": receipt}
        return as_json(answer)

    fake.overrides["/mcp"] = mcp
    return losing


async def test_a_new_wallet_shows_its_address_and_never_its_key(shell: Terminal) -> None:
    made = await shell.run("wallet", "new")
    assert made.code == 0
    address = made.stdout.strip()
    file = shell.config / "wallet.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = file.read_text().strip()
    shown = await shell.run("wallet", "show")
    assert (await shell.run("wallet", "address")).stdout.strip() == address
    assert address in shown.stdout and "nothing yet" in shown.stdout
    spoken = made.stdout + made.stderr + shown.stdout + shown.stderr
    assert key[2:] not in spoken and key[2:14] not in spoken
    assert "ostiary wallet allow" in made.stderr
    again = await shell.run("wallet", "new")
    assert again.code == 1
    assert "there is a file" in again.stderr
    assert file.read_text().strip() == key


async def test_a_key_elsewhere_does_not_take_the_place_of_the_wallet(shell: Terminal) -> None:
    first = json.loads((await shell.run("wallet", "new", "--json")).stdout)
    assert first["used"] is True
    path = shell.home / "other.key"
    second = await shell.run("wallet", "new", "--out", str(path))
    assert f"ostiary wallet allow --key file:{path}" in second.stderr
    assert (await shell.run("wallet", "address")).stdout.strip() == first["address"]
    assert (await shell.run("wallet", "address", "--key", f"file:{path}")).stdout == second.stdout
    assert (await shell.run("wallet", "address", "--key", "env:K", K=KEY)).stdout.strip() == PAYER


async def test_without_a_wallet_or_limits_nothing_is_paid(logged_in: Terminal, fake: FakeServer) -> None:
    shop = Shop()
    sells(fake, shop)
    unpaid = await logged_in.run("call", fake.url, "echo", "text=hello")
    assert unpaid.code == 1
    assert "echo costs money: Payment required" in unpaid.stderr and "--pay" in unpaid.stderr
    bare = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert "there is no wallet here" in bare.stderr and "ostiary wallet new" in bare.stderr
    await logged_in.run("wallet", "new")
    unlimited = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert unlimited.code == 1
    assert "the wallet does not say what may be spent: --per-call is not set" in unlimited.stderr
    assert (
        "hint: ostiary wallet allow --per-call 0.05 --per-day 1 --network base-sepolia --payee any"
        in unlimited.stderr
    )
    await logged_in.run("wallet", "allow", "--per-call", "0.05", "--network", "base-sepolia")
    partly = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert "hint: ostiary wallet allow --per-day 1 --payee any\n" in partly.stderr
    assert shop.shown == []


async def test_limits_are_checked_when_they_are_set_and_can_be_taken_back(shell: Terminal) -> None:
    await wallet(shell, "--confirm-above", "0.01")
    told = json.loads((await shell.run("wallet", "show", "--json")).stdout)
    assert (told["per_call"], told["networks"], told["payees"]) == ("0.05", ["base-sepolia"], ["any"])
    assert (told["address"], told["spent_today"], told["unanswered"]) == (PAYER, "$0.00", [])
    for arguments, word in (
        (("--per-call", "much"), "--per-call"),
        (("--network", "ethereum"), "--network"),
        (("--payee", "0x12"), "--payee"),
        (("--token", "x"), "--token"),
        (("--key", KEY), "never in clear"),
        (("--key", "env:NOT_SET"), "is not set"),
    ):
        refused = await shell.run("wallet", "allow", *arguments)
        assert refused.code in (1, 2)
        assert word in refused.stderr
        assert KEY[2:] not in refused.stderr
    same = await shell.run("wallet", "allow", "--network", "eip155:84532", "--payee", PAYEE.lower(), "--json")
    assert json.loads(same.stdout)["networks"] == ["base-sepolia"]
    assert json.loads(same.stdout)["payees"] == [PAYEE]
    for more, payees in (
        (("--payee", PAYER), [PAYEE, PAYER]),
        (("--payee", "any"), ["any"]),
        (("--payee", "any", "--payee", PAYEE), [PAYEE]),
        (("--per-day", "1"), [PAYEE]),
    ):
        said = await shell.run("wallet", "allow", *more, "--json")
        assert json.loads(said.stdout)["payees"] == payees
    less = await shell.run("wallet", "forbid", "--payee", PAYEE, "--json")
    assert json.loads(less.stdout)["payees"] == []
    assert (await shell.run("wallet", "forbid", "--network", "base")).code == 1
    nothing = await shell.run("wallet", "forbid", "--everything")
    assert (
        "nothing is paid until there is something for --per-call, --per-day, --network, --payee"
        in nothing.stderr
    )


async def test_a_call_is_paid_within_the_limits(logged_in: Terminal, fake: FakeServer) -> None:
    shop = Shop()
    sells(fake, shop)
    await wallet(logged_in, "--confirm-above", "0.02")
    paid = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert (paid.code, paid.stdout) == (0, "hello\n")
    assert paid.stderr == (
        "paying $0.02 to 0x2096…287C on Base Sepolia (a test network) for the tool `echo`\n"
        f"paid $0.02 on Base Sepolia, transaction {TRANSACTION}\n"
    )
    assert shop.taken == 20_000
    shown = await logged_in.run("wallet", "show")
    assert "$0.02 (UTC)" in shown.stdout
    free = await logged_in.run("call", "--pay", fake.url, "region")
    assert (free.stdout, free.stderr) == ("there\n", "")
    whole = await logged_in.run("call", "--pay", "--json", fake.url, "echo", "text=hi")
    assert json.loads(whole.stdout)["_meta"]["x402/payment-response"]["transaction"] == TRANSACTION


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_lost_answer_is_fetched_without_paying_again(
    logged_in: Terminal, fake: FakeServer, era: str
) -> None:
    fake.era = era
    shop = Shop()
    losing = sells(fake, shop)
    losing.append(True)
    await wallet(logged_in, "--confirm-above", "0.05")
    lost = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert lost.code == 1
    waiting = await logged_in.run("wallet", "show")
    assert "without an answer: $0.02 to 0x2096…287C" in waiting.stderr
    again = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert (again.code, again.stdout) == (0, "hello\n")
    assert "payment of before again" in again.stderr
    assert (len(shop.cashed), shop.taken) == (1, 20_000)
    assert shop.shown[0] == shop.shown[1]
    keys = {
        seen.message["params"]["_meta"]["x402/idempotency-key"]
        for seen in fake.seen
        if "x402/payment" in seen.message.get("params", {}).get("_meta", {})
    }
    assert len(keys) == 1


async def test_a_script_pays_nothing_that_a_person_should_agree_to(
    logged_in: Terminal, fake: FakeServer
) -> None:
    shop = Shop()
    sells(fake, shop)
    await wallet(logged_in)  # which asks each time
    refused = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert refused.code == 1
    assert "hint: ostiary wallet allow --confirm-above 0.02" in refused.stderr
    assert shop.shown == []


@pytest.mark.parametrize("said", ["yes", "no"])
async def test_a_person_at_a_terminal_is_asked(logged_in: Terminal, fake: FakeServer, said: str) -> None:
    shop = Shop()
    sells(fake, shop)
    await wallet(logged_in)
    async with Restaurant(logged_in, fake.url).calling("--pay", "echo", "text=hello") as screen:
        await screen.shows(
            "this costs $0.02 to 0x2096…287C on Base Sepolia (a test network) for the tool `echo`\n"
        )
        assert shop.shown == []
        await screen.answers("pay it? [yes/no] ", said)
        code, printed = await screen.ends()
    assert (code, printed) == ((0, "hello\n") if said == "yes" else (1, ""))
    assert shop.taken == (20_000 if said == "yes" else 0)
    assert ("not paid" in screen.seen) is (said == "no")


async def test_what_goes_beyond_the_limits_is_refused_with_the_way_to_allow_it(
    logged_in: Terminal, fake: FakeServer
) -> None:
    shop = Shop()
    sells(fake, shop)
    await wallet(logged_in, "--confirm-above", "0.05", "--payee", PAYER)
    refused = await logged_in.run("call", "--pay", fake.url, "echo", "text=hello")
    assert f"hint: ostiary wallet allow --payee {PAYEE}" in refused.stderr
    assert shop.shown == []


@pytest.mark.parametrize("command", ["call", "connect"])
async def test_whoever_does_not_pay_loads_nothing_of_it(
    logged_in: Terminal, fake: FakeServer, command: str
) -> None:
    arguments = [command, fake.url, *(["echo", "text=hello"] if command == "call" else [])]
    script = (
        "import sys\n"
        "from server.cli import run\n"
        f"code = run({arguments!r})\n"
        "loaded = [name for name in sys.modules if name.startswith(('server.payments.buyer', 'server.lib.evm', 'server.payments.x402'))]\n"
        "print(code, loaded, file=sys.stderr)\n"
    )
    done = await trio.run_process(
        [sys.executable, "-P", "-c", script],
        stdin=b"",
        capture_stdout=True,
        capture_stderr=True,
        env=logged_in.environment(),
    )
    assert done.stderr.decode() == "0 []\n"


def test_settings_that_cannot_be_read_pay_nothing(tmp_path: Path) -> None:
    file = WalletFile(tmp_path / "ostiary")
    assert file.load() == WalletSettings()
    file.change(lambda _: WalletSettings(per_call="1"))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.path.write_text("{")
    with pytest.raises(WalletError, match="damaged"):
        file.load()
    file.path.write_text('{"version": 2}')
    with pytest.raises(WalletError, match="newer"):
        file.load()
    file.path.chmod(0o640)
    with pytest.raises(TokenFileError, match="by others"):
        file.load()
