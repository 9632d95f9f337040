"""Money in the settings: what is refused when they are read, what they come to, and which prices nobody could pay."""

from __future__ import annotations

from pathlib import Path

from server.settings.money_faults import unpayable
from server.settings.money_settings import PaymentsConfig, PlanConfig, PriceTable, seconds_of
from server.settings.resolved_settings import Resolved
from server.settings.sale_settings import accepted_assets
from tests.settings.written import MINE, PAID, TOKEN, problems, server, settled, tool


def complaints(resolved: Resolved) -> list[str]:
    return unpayable(resolved.payments, resolved.plans, resolved.servers)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_credential_and_the_address_of_a_node_are_not_repeated(tmp_path: Path) -> None:
    secret = "s3cret-s3cret"
    headers = f'[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nheaders = {{ authorization = "Bearer {secret}" }}\n'
    node = f'[payments]\nnetworks = ["base"]\nrpc = {{ base = "http://n.example/{secret}" }}\n'
    for text in (headers, node):
        told = problems(tmp_path, text + server())
        assert len(told) == 1 and secret not in told[0]
    resolved = settled(tmp_path, node.replace("http:", "https:") + server())
    assert secret not in repr(resolved.payments)


# ── what they come to ────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_word_of_money_there_is_none(tmp_path: Path) -> None:
    resolved = settled(tmp_path, server())
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
    resolved = settled(tmp_path, text)
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
    resolved = settled(tmp_path, text + server())
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
    assert len(found) == 2 and "write its address" in found[0]
    resolved = settled(tmp_path, PAID + token + tool(f'price = {{ asset = "{TOKEN}", {amount} }}'))
    assert resolved.servers[0].tools["echo"].price is not None
    (finer,) = problems(tmp_path, PAID + token + tool(f'price = {{ asset = "{TOKEN}", amount = "1" }}'))
    assert "is finer than a millionth" in finer


# ── prices that nobody could pay ─────────────────────────────────────────────────────────────────────────────────────


def test_a_price_that_somebody_can_pay_is_not_complained_of(tmp_path: Path) -> None:
    assert complaints(settled(tmp_path, PAID + server('price = "$0.01"'))) == []
    assert complaints(settled(tmp_path, server('price = "free"'))) == []
    anonymous = 'auth = "none"\nprice = "$0.01"'
    assert complaints(settled(tmp_path, PAID + server(anonymous))) == []
