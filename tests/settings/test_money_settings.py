"""Money in the settings: what is refused when they are read, what they come to, and which prices nobody could pay."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.settings.money import PaymentsConfig, PlanConfig, PriceTable, seconds_of
from server.settings.money_faults import unpayable
from server.settings.reading import ConfigInvalid, load
from server.settings.resolve import Resolved, resolve
from server.settings.sales import accepted_assets

MINE = "0x52908400098527886E0F7030069857D2E4169EE7"
TOKEN = "0xde709f2102306220921060314715629080e2fb77"
FACILITATOR = '[[payments.facilitator]]\nurl = "https://facilitator.example"\n'
PAID = f'[payments]\npay_to = "{MINE}"\nnetworks = ["base-sepolia"]\n{FACILITATOR}'


def read(tmp_path: Path, text: str) -> Resolved:
    file = tmp_path / "ostiary.toml"
    file.write_text(text, "utf-8")
    return resolve(load(file, {}))


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        read(tmp_path, text)
    return [str(problem) for problem in caught.value.problems]


def server(lines: str = "", tables: str = "", name: str = "main") -> str:
    return f'[[server]]\nname = "{name}"\n{lines}\n{tables}\n[[server.agent]]\nkind = "demo"\n'


def tool(lines: str) -> str:
    return server("", f"[server.tools.echo]\n{lines}")


def complaints(resolved: Resolved) -> list[str]:
    return unpayable(resolved.payments, resolved.plans, resolved.servers)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (server("price = 0.01"), 'server[1].price: cannot be 0.01; write "$0.01", "free", "plan"'),
        (server('price = "$0.0000001"'), 'server[1].price: "$0.0000001" is no amount; write'),
        (server('price = "1e-3"'), 'server[1].price: "1e-3" is no amount'),
        (server('price = "-1"'), 'server[1].price: "-1" is no amount'),
        (server('price = "$0"'), 'server[1].price: "$0" is nothing; write "free"'),
        (server("price = {}"), "server[1].price: says nothing; write"),
        (
            server('price = { exprssion = "1" }'),
            "server[1].price.exprssion: is not a setting; write expression",
        ),
        (
            tool('price = { function = "f", expression = "1" }'),
            "tools.echo.price: says several things at once",
        ),
        (tool('price = { function = "f x" }'), 'tools.echo.price.function: cannot be "f x"'),
        (tool('price = { expression = "len(" }'), "tools.echo.price.expression: is no arithmetic"),
        (tool('price = { expression = "1 / 3" }'), "tools.echo.price.expression: divides"),
        (tool('price = { expression = "1", most = "none" }'), 'tools.echo.price.most: "none" is no amount'),
        (tool('price = { asset = "USDC", amount = "1" }'), '.price.asset: "USDC" is not accepted here'),
        (PAID + tool('price = { asset = "USDC" }'), "tools.echo.price: has one of asset and amount"),
        (PAID + tool('price = { asset = "USDC", amount = "0" }'), ".price.amount: is nothing"),
        (PAID + tool('price = { asset = "USDC", amount = "1.5" }'), ".price.amount: is no whole number"),
        (PAID + tool('price = { asset = "usdc", amount = "1", most = "$1" }'), ".price.most: says nothing"),
        (tool('price_for = { root = "$1" }'), "price_for.root: is no kind of caller"),
        (tool('price = "$1"\nprice_for = { user = "x" }'), 'price_for.user: "x" is no amount'),
        (tool('price = "$1"\nflow = "before"'), 'tools.echo.flow: cannot be "before"'),
        (tool('price = "$1"\ndedupe = "1d"'), 'tools.echo.dedupe: cannot be "1d"'),
        (tool('price = "free"\ntrial = 3'), "tools.echo.trial: says nothing of a tool that is free"),
        (tool('price = "plan"\nflow = "upfront"'), "tools.echo.flow: says nothing"),
        (server("anonymous_pay = true"), "server[1].anonymous_pay: needs [payments]"),
        # plans
        ('[[plan]]\nname = "a"\n' + server(), "plan[1]: offers nothing"),
        ('[[plan]]\nwords = "a"\n' + server(), "plan[1].name: is missing"),
        ('[[plan]]\nname = "A b"\ncalls = 1\n' + server(), 'plan[1].name: cannot be "A b"'),
        (
            '[[plan]]\nname = "a"\ncalls = 1\nunlimited = true\n' + server(),
            "plan[1].unlimited: leaves nothing",
        ),
        ('[[plan]]\nname = "a"\nprices = { "x y" = "free" }\n' + server(), "plan[1].prices.x y: is no tool"),
        ('[[plan]]\nname = "a"\ntool_calls = { "b/x" = 1 }\n' + server(), 'there is no server "b"'),
        ('[[plan]]\nname = "a"\nprices = { x = "$0" }\n' + server(), 'plan[1].prices.x: "$0" is nothing'),
        ('[[plan]]\nname = "a"\ncalls = 1\nprice = "x"\n' + server(), 'plan[1].price: "x" is no amount'),
        (
            '[[plan]]\nname = "a"\ncalls = 1\n[[plan]]\nname = "a"\ncalls = 2\n' + server(),
            'plan[2].name: "a" is used twice',
        ),
        # payments
        ("payments = 1\n" + server(), "payments: cannot be 1; write a table, [payments]"),
        ('[payments]\ndeposit_least = "some"\n' + server(), 'payments.deposit_least: "some" is no amount'),
        ('[payments]\ndeposit_most = "$0"\n' + server(), 'payments.deposit_most: "$0" is nothing'),
        (
            '[payments]\ndeposit_least = "$5"\ndeposit_most = "$4"\n' + server(),
            "payments.deposit_least: is more than deposit_most",
        ),
        ("[payments]\npayto = 1\n" + server(), "payments.payto: is not a setting; write pay_to"),
        ('[payments]\npay_to = "me"\n' + server(), 'payments.pay_to: cannot be "me"'),
        (f'[payments]\npay_to = "{MINE[:-2]}e7"\n' + server(), "payments.pay_to: is mistyped"),
        (f'[payments]\npay_to = "0x{"0" * 40}"\n' + server(), "payments.pay_to: is nobody's address"),
        ('[payments]\nnetworks = ["solana"]\n' + server(), 'payments.networks[1]: "solana" is no network'),
        ('[payments]\nnetworks = ["base", "eip155:8453"]\n' + server(), "payments.networks[2]"),
        ('[payments]\nnetworks = ["eip155:31337"]\n' + server(), '"eip155:31337" has no usual asset'),
        (
            '[payments]\n[[payments.asset]]\nnetwork = "eip155:31337"\nname = "C"\nversion = "1"\n'
            + server(),
            "payments.asset[1].address: is missing",
        ),
        (
            f'[payments]\n[[payments.asset]]\nnetwork = "base"\naddress = "{TOKEN}"\nversion = "1"\n'
            + server(),
            "payments.asset[1].name: is missing; write what name() of the token says",
        ),
        (
            '[payments]\n[[payments.asset]]\nnetwork = "base"\nsymbol = "EURC"\n' + server(),
            "payments.asset[1]: is the usual USDC of its network, and says otherwise",
        ),
        (
            '[payments]\n[[payments.asset]]\nnetwork = "base"\n[[payments.asset]]\nnetwork = "base"\n'
            + server(),
            "payments.asset[2]: describes an asset that another table describes",
        ),
        (
            '[payments]\n[[payments.facilitator]]\nurl = "http://f.example"\n' + server(),
            'payments.facilitator[1].url: "http://f.example" would send payments over the network unencrypted',
        ),
        (
            '[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nkey_id = "env:I"\n' + server(),
            "payments.facilitator[1]: has one of key_id and key_secret; write both, or neither",
        ),
        (
            '[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nkey_id = "env:I"\nkey_secret = "s3cret"\n'
            + server(),
            'payments.facilitator[1].key_secret: is no reference; write "env:NAME" or "file:/path"',
        ),
        (
            '[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nkey_id = "env:I"\nkey_secret = "env:S"\n'
            'headers = { Authorization = "env:A" }\n' + server(),
            "payments.facilitator[1].headers.authorization: is there besides key_secret",
        ),
        (
            '[payments]\n[[payments.facilitator]]\nurl = "https://u:p@f.example"\n' + server(),
            "payments.facilitator[1].url",
        ),
        (
            '[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nnetworks = ["base"]\n'
            + server(),
            'payments.facilitator[1].networks: "base" is not accepted',
        ),
        (
            '[payments]\nrpc = { base = "https://n.example" }\n' + server(),
            'payments.rpc: "base" is not accepted',
        ),
        ('[payments]\ncaps = { per_day = "5 dollars" }\n' + server(), "payments.caps.per_day"),
        ('[payments]\ncaps = { per_week = "$5" }\n' + server(), "payments.caps.per_week: is not a setting"),
        ("[payments]\nmax_timeout_seconds = 5\n" + server(), "payments.max_timeout_seconds: cannot be 5"),
    ],
)
def test_what_cannot_be_meant_is_said_by_its_name(tmp_path: Path, text: str, problem: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1 and problem in found[0], found


def test_a_credential_and_the_address_of_a_node_are_not_repeated(tmp_path: Path) -> None:
    secret = "s3cret-s3cret"
    headers = f'[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nheaders = {{ authorization = "Bearer {secret}" }}\n'
    node = f'[payments]\nnetworks = ["base"]\nrpc = {{ base = "http://n.example/{secret}" }}\n'
    for text in (headers, node):
        told = problems(tmp_path, text + server())
        assert len(told) == 1 and secret not in told[0]
    resolved = read(tmp_path, node.replace("http:", "https:") + server())
    assert secret not in repr(resolved.payments)


# ── what they come to ────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_word_of_money_there_is_none(tmp_path: Path) -> None:
    resolved = read(tmp_path, server())
    assert (resolved.payments, resolved.plans, resolved.servers[0].price) == (None, (), None)
    assert complaints(resolved) == []


def test_what_is_written_arrives(tmp_path: Path) -> None:
    text = (
        PAID
        + '[[plan]]\nname = "pro"\ncalls = 10\ntool_calls = { "main/*" = 5 }\nprices = { "*" = "free" }\ndays = 30\n'
        + server(
            'price = "$0.01"\nanonymous_pay = true',
            '[server.tools.echo]\nprice = { expression = "len(text)" }\ndedupe = "2m"',
        )
    )
    resolved = read(tmp_path, text)
    assert isinstance(resolved.payments, PaymentsConfig) and resolved.payments.pay_to == MINE
    assert resolved.plans == (
        PlanConfig(name="pro", calls=10, tool_calls={"main/*": 5}, prices={"*": "free"}, days=30),
    )
    (main,) = resolved.servers
    assert main.price == "$0.01" and main.anonymous_pay
    assert main.tools["echo"].price == PriceTable(expression="len(text)")
    assert [seconds_of(each) for each in (main.tools["echo"].dedupe, "", "60s", "1h")] == [120, 0, 60, 3600]


def test_assets_are_accepted_in_the_order_of_the_settings_and_paid_where_their_table_says(
    tmp_path: Path,
) -> None:
    other = "0x8617E340B3D01FA5F11F306F4090FD50E238070D"
    text = f"""
[payments]
pay_to = "{MINE}"
networks = ["polygon", "base"]
[[payments.asset]]
network = "eip155:31337"
address = "{TOKEN}"
name = "Coin"
version = "1"
decimals = 18
[[payments.asset]]
network = "base"
pay_to = "{other}"
"""
    resolved = read(tmp_path, text + server())
    assert resolved.payments is not None
    found = accepted_assets(resolved.payments)
    assert [(each.network.caip2, each.asset.symbol, each.pay_to) for each in found] == [
        ("eip155:137", "USDC", MINE),
        ("eip155:8453", "USDC", other),
        ("eip155:31337", "Coin", MINE),
    ]
    assert found[2].asset.address == TOKEN and found[2].asset.decimals == 18


def test_an_atomic_price_names_an_asset_whose_units_are_clear(tmp_path: Path) -> None:
    token = f'[[payments.asset]]\nnetwork = "eip155:31337"\naddress = "{TOKEN}"\nname = "USDC"\nversion = "1"\ndecimals = 18\n'
    amount = 'amount = "1000000000000000000"'
    found = problems(tmp_path, PAID + token + tool(f'price = {{ asset = "USDC", {amount} }}'))
    assert len(found) == 2 and "counts otherwise on another network; write its address" in found[0]
    resolved = read(tmp_path, PAID + token + tool(f'price = {{ asset = "{TOKEN}", {amount} }}'))
    assert resolved.servers[0].tools["echo"].price is not None
    (finer,) = problems(tmp_path, PAID + token + tool(f'price = {{ asset = "{TOKEN}", amount = "1" }}'))
    assert "is finer than a millionth" in finer


# ── prices that nobody could pay ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (server('price = "$0.01"'), "without [payments] nobody can pay them"),
        ("[payments]\nwallets = false\n" + server('price = "$0.01"'), "names no network: every call"),
        ("[payments]\n" + server('price = "$0.01"'), "can be paid from what you grant alone"),
        ('[payments]\nnetworks = ["base"]\n' + FACILITATOR + server('price = "$0.01"'), "has no pay_to"),
        (
            f'[payments]\npay_to = "{MINE}"\nnetworks = ["base"]\n' + server('price = "$0.01"'),
            "no [[payments.facilitator]] serves Base",
        ),
        (PAID + server('price = "$0.01"', '[server.tools.echo]\nprice = "plan"'), "there is no [[plan]]"),
        (
            f'[payments]\npay_to = "{MINE}"\n{FACILITATOR}'
            f'[[payments.asset]]\nnetwork = "base"\naddress = "{TOKEN}"\nname = "C"\nversion = "1"\ndecimals = 2\n'
            + server('price = "$0.001"'),
            "cannot be paid with a token that has 2 decimals",
        ),
    ],
)
def test_a_price_that_nobody_could_pay_is_said(tmp_path: Path, text: str, said: str) -> None:
    found = complaints(read(tmp_path, text))
    assert len(found) == 1 and said in found[0], found


def test_a_price_that_somebody_can_pay_is_not_complained_of(tmp_path: Path) -> None:
    assert complaints(read(tmp_path, PAID + server('price = "$0.01"'))) == []
    assert complaints(read(tmp_path, server('price = "free"'))) == []
    anonymous = 'auth = "none"\nprice = "$0.01"'
    assert complaints(read(tmp_path, PAID + server(anonymous))) == []
