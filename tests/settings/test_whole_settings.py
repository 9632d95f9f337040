"""Settings from first to last (server/run/whole_settings.py): everything that is wrong with them, at once, with its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server.run.whole_settings import NotHere, read_whole
from server.settings.settings_reader import ConfigInvalid

DEMO = '[[server]]\n[[server.agent]]\nkind = "demo"\n'


def problems(folder: Path, text: str, /, **environment: str) -> list[str]:
    return [problem.found for problem in refused(folder, text, **environment).problems]


def refused(folder: Path, text: str, /, **environment: str) -> ConfigInvalid:
    file = folder / "o.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigInvalid) as caught:
        read_whole(file, environment, {})
    return caught.value


def test_each_secret_that_settings_refer_to_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    text = """registration = "token"
registration_token = "env:NOPE"
[payments]
pay_to = "0x52908400098527886E0F7030069857D2E4169EE7"
networks = ["base"]
[[payments.facilitator]]
url = "https://x402.example"
key_id = "env:NOPE"
key_secret = "env:NOPE"
[[upstream]]
name = "work"
kind = "oidc"
issuer = "https://login.example.org"
client_id = "ostiary"
client_secret = "env:NOPE"
allow = [{ subject = "1", user = "bob" }]
[[server]]
price = "$0.01"
tokens = [{ name = "ci", token = "env:NOPE" }]
[[server.agent]]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "m"
[server.agent.pay]
key = "env:NOPE"
per_call = "$1"
per_day = "$1"
networks = ["base"]
payees = ["any"]
"""
    lacks = "the environment variable NOPE is not set"
    assert {found.partition(", ")[2] for found in problems(tmp_path, text)} == {
        f"{key}: {lacks}"
        for key in (
            "registration_token",
            "payments.facilitator[1].key_id",
            "payments.facilitator[1].key_secret",
            "upstream[1].client_secret",
            "server[1].tokens[1].token",
            "server[1].agent[1].pay.key",
        )
    }


def test_what_is_wrong_with_money_is_told_in_one_round(tmp_path: Path) -> None:
    text = """[payments]
pay_to = "0x12"
networks = ["mars"]
[[payments.facilitator]]
url = "ftp://x"
[[server]]
price = "$x"
[server.tools.search]
price = { asset = "USDC", amount = "1" }
[[server.agent]]
kind = "demo"
"""
    assert [found.partition(", ")[2].partition(":")[0] for found in problems(tmp_path, text)] == [
        "payments.pay_to",
        "payments.networks[1]",
        "payments.facilitator[1].url",
        "server[1].price",
    ]


# Besides what each says, [payments] has an rpc of a network that is no address, and a server a price that is none.
MALFORMED = {
    "pay_to": 'pay_to = "0x12"',
    "networks": "networks = 3",
    "max_timeout_seconds": "max_timeout_seconds = 1",
    "deposit_least": "deposit_least = 2",
    "wallets": 'wallets = "yes"',
    "nonsense": "nonsense = 1",
    "facilitator[1].url": "facilitator = [{ url = 1 }]",
    "asset[1].network": "asset = [{}]",
}


@pytest.mark.parametrize("field", MALFORMED)
def test_a_malformed_field_of_money_hides_nothing_and_nothing_false_follows_from_it(
    tmp_path: Path, field: str
) -> None:
    networks = "" if field == "networks" else 'networks = ["base"]\n'
    text = f"""[payments]
{networks}{MALFORMED[field]}
deposit_most = "$0.05"
{"" if field == "deposit_least" else 'deposit_least = "$0.01"'}
rpc = {{ base = "ftp://x" }}
[[plan]]
name = "pro"
[[server]]
price = "$x"
[server.tools]
search = {{ price = {{ asset = "USDC", amount = "1" }} }}
other = {{ price = {{ asset = "GBP", amount = "1" }} }}
[[server.agent]]
kind = "demo"
"""
    found = [each.partition(", ")[2].partition(":")[0] for each in problems(tmp_path, text)]
    # Where it is not known what is accepted, nothing is said of that.
    asset = [] if field in ("networks", "asset[1].network") else ["server[1].tools.other.price.asset"]
    others = ["payments.rpc.base", "plan[1]", "server[1].price", *asset]
    assert sorted(found) == sorted([f"payments.{field}", *others])


def test_a_malformed_table_hides_no_mistake_of_another_of_its_kind(tmp_path: Path) -> None:
    text = """[[upstream]]
name = 1
kind = "oidc"
issuer = "https://a.example"
client_id = "o"
allow = [{ subject = "1", user = "bob" }]
[[upstream]]
name = "work"
kind = "github"
client_id = "o"
client_secret = "env:NOPE"
[[plan]]
name = 1
[[plan]]
name = "pro"
"""
    found = [each.partition(", ")[2].partition(":")[0] for each in problems(tmp_path, text + DEMO)]
    assert sorted(found) == ["plan[1].name", "plan[2]", "upstream[1].name", "upstream[2].allow"]


def test_a_malformed_field_of_a_server_hides_no_mistake_of_money(tmp_path: Path) -> None:
    text = """[payments]
networks = ["mars"]
[[plan]]
name = "pro"
prices = { "main/search" = "$x" }
[[server]]
name = 1
[[server.agent]]
kind = "demo"
[[server]]
name = "other"
titel = "x"
price = "$x"
[[server.agent]]
kind = "demo"
"""
    found = [each.partition(", ")[2].partition(":")[0] for each in problems(tmp_path, text)]
    assert "payments.networks[1]" in found
    assert [each for each in found if each.startswith("plan")] == ["plan[1].prices.main/search"]
    text = text.replace("name = 1", 'name = "main"')
    found = [each.partition(", ")[2].partition(":")[0] for each in problems(tmp_path, text)]
    assert [each for each in found if each.startswith("server")] == ["server[2].titel", "server[2].price"]


def test_what_used_to_come_in_four_rounds_is_told_in_one_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("import ostiary\ndef f(\n", "utf-8")
    monkeypatch.delenv("NOPE", raising=False)
    text = """prot = 1
issuer = "ftp://x"
admin_port = 8420
tls_certificate = "a.pem"

[[upstream]]
name = "work"

[[server]]
titel = "x"
[[server.agent]]
kind = "python"
file = "bad.py"
[[server.agent]]
kind = "python"
file = "none.py"
environment = { KEY = "env:NOPE" }
[[server.agent]]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
model = "m"
headers = { "X-Key" = "Bearer env:NOPE" }
"""
    assert problems(tmp_path, text, OSTIARY_PORT="many") == [
        "line 1, prot: is not a setting; write port",
        'line 2, issuer: "ftp://x" does not begin with https:// or http://; write e.g. "https://agent.example.org"'
        " (and a name of other letters as xn--…)",
        "line 4, tls_certificate: and tls_key belong together; write both, or neither",
        'line 6, upstream[1].kind: is missing; write "oidc" or "github"',
        "line 6, upstream[1].client_id: is missing; write the id that the provider gave you",
        "line 10, server[1].titel: is not a setting; write title",
        "line 13, server[1].agent[1].file: bad.py:2: SyntaxError: '(' was never closed",
        f"line 16, server[1].agent[2].file: there is no file {tmp_path / 'none.py'}",
        "line 17, server[1].agent[2].environment.KEY: the environment variable NOPE is not set",
        "line 22, server[1].agent[3].headers.X-Key: the environment variable NOPE is not set",
        'OSTIARY_PORT: cannot be "many"; write a port from 0 to 65535; 0 picks a free one',
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # It is wrong itself: nothing is to be said of what it leads to.
        ('host = "0.0.0.0"\nissuer = 5\n', ["line 2, issuer: cannot be 5"]),
        ("tls_key = 5\ntls_certificate = 'a'\n", ["line 1, tls_key: cannot be 5"]),
        ('registration = "sometimes"\n', ['line 1, registration: cannot be "sometimes"']),
        ("domain = 5\naccept_terms = true\n", ["line 1, domain: cannot be 5"]),
        ("admin_port = 8420\n", ["line 1, admin_port: 8420 is what port has already"]),
        ('[[scope]]\nname = "a"\n' + '[[server]]\n[server.tools.x]\nscope = "a"\n[[server.agent]]\nkind = "demo"\n',
         ["line 1, scope[1].description: is missing"]),
        ("[server.tools.x]\n[server.tools.x]\n", ["o.toml: cannot be read: [server.tools.x] is there twice: put both into one (at line 2, column 16)"]),
        ('store_dir = "x\n', ["o.toml: cannot be read: a text is not closed: a quote is missing at its end (at line 1, column 15)"]),
        ("[[server]\n", ["o.toml: cannot be read: Expected ']]' at the end of an array declaration (at line 1, column 9)"]),
    ],
)  # fmt: skip
def test_nothing_is_told_that_would_not_be_wrong_without_another_mistake(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    found = [problem.partition("; write")[0] for problem in problems(tmp_path, text)]
    assert [problem.replace(f"{tmp_path}/", "") for problem in found] == expected


def test_a_line_of_the_file_is_not_named_where_the_environment_says_otherwise(tmp_path: Path) -> None:
    assert problems(tmp_path, 'issuer = "https://a.example.org"\n' + DEMO, OSTIARY_ISSUER="ftp://x")[
        0
    ].startswith('OSTIARY_ISSUER: "ftp://x"')


@pytest.mark.parametrize(
    ("written", "environment", "flags", "named"),
    [
        ("port = 8431\nadmin_port = 8431\n", {}, {}, "admin_port"),
        ("port = 8431\n", {"OSTIARY_ADMIN_PORT": "8431"}, {}, "OSTIARY_ADMIN_PORT"),
        ("port = 8431\nadmin_port = 8432\n", {}, {"admin_port": 8431}, "--admin-port"),
        ("port = 8431\n", {"OSTIARY_ADMIN_PORT": "8432"}, {"admin_port": 8431}, "--admin-port"),
    ],
)
def test_what_a_flag_or_the_environment_says_is_not_blamed_on_the_file(
    tmp_path: Path, written: str, environment: dict[str, str], flags: dict[str, object], named: str
) -> None:
    file = tmp_path / "o.toml"
    file.write_text(written + DEMO, "utf-8")
    with pytest.raises(ConfigInvalid) as caught:
        read_whole(file, environment, flags)
    assert [problem.key for problem in caught.value.problems] == [named]
    assert (str(file) in str(caught.value)) == (named == "admin_port")


def test_what_the_machine_lacks_alone_may_come_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    token = '[[server]]\ntokens = [\n  { name = "ci", token = "env:NOPE", scope = "mcp" },\n]\n[[server.agent]]\nkind = "demo"\n'
    found = refused(tmp_path, token)
    assert isinstance(found, NotHere)
    assert [problem.found for problem in found.problems] == [
        "line 3, server[1].tokens[1].token: the environment variable NOPE is not set"
    ]
    assert not isinstance(refused(tmp_path, f"prot = 1\n{token}"), NotHere)


def test_a_file_that_only_its_own_interpreter_can_read_is_in_order(tmp_path: Path) -> None:
    newer = tmp_path / "python9"
    # Whatever it is asked about, it can read.
    newer.write_text("#!/bin/sh\nexit 0\n", "utf-8")
    newer.chmod(0o700)
    file = tmp_path / "agent.py"
    file.write_text("future syntax\n", "utf-8")
    settings = f'[[server]]\n[[server.agent]]\nkind = "python"\nfile = "{file}"\npython = "{{}}"\n'
    written = tmp_path / "o.toml"
    written.write_text(settings.format(newer), "utf-8")
    assert read_whole(written, {}, {}).servers
    assert problems(tmp_path, settings.format(sys.executable)) == [
        "line 4, server[1].agent[1].file: agent.py:1: SyntaxError: invalid syntax"
    ]


def test_no_secret_is_in_what_is_told(tmp_path: Path) -> None:
    secret = "sk-0123456789abcdef"
    text = f'[[server]]\n[[server.agent]]\nkind = "openai"\nbase_url = "http://h/v1"\nmodel = "m"\napi_key = "{secret}"\n'
    assert secret not in " ".join(problems(tmp_path, text))
