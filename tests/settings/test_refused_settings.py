"""Settings that are refused: which key is named for each, and in the snapshot the words in which it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from server.settings.money_faults import unpayable
from server.settings.settings_reader import ConfigInvalid
from tests.settings.written import (
    ALLOW,
    DOMAIN,
    FACILITATOR,
    GITHUB,
    MINE,
    OIDC,
    OTLP,
    PAID,
    TOKEN,
    server,
    settled,
    tool,
)
from tests.snapshots import Snapshot

COMMAND: Final = server().replace("demo", "command") + '[[server.agent.tool]]\nname = "a"\nrun = ["cat"]\n'
SECRETS: Final = ("s3cret", "hunter2", "c2VjcmV0", "me:pw")
# By what it is about: what is written, and the keys that are named.
REFUSED: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "program": [
        ('prot = 8420\nport = 99999\nlog_level = "loud"', "prot port log_level"),
        ('drain_seconds = "soon"', "drain_seconds"),
        ('[[server]]\nname = "a"', "server[1].agent"),
        (server() + server(), "server.name"),
        (server().replace('name = "main"', 'name = "Bad Name"\ntitel = "x"'), "server[1].name server[1].titel"),
        (server().replace("demo", "robot"), "server[1].agent[1].kind"),
        (server('compat = { invalid_arguments = -1, tasks = "none", task = "core" }'),
         "server[1].compat.invalid_arguments server[1].compat.tasks server[1].compat.task"),
        ('store = "env:DATABASE"\nworkers = 2\n' + server("compat = { sse = true }"), "server[1].compat.sse"),
        ('store = "env:DATABASE"\nworkers = 2\n' + server().replace("demo", "mcp") + 'id = "a"\nurl = "https://a.example"\nprefix = "on collision"',
         "server[1].agent[1].prefix"),
        (server().replace("demo", "mcp") + 'url = "https://a.example"\nprefix = "on collision"', "server[1].agent[1].prefix"),
        (server('old_names = { "a.*" = "a" }\nold_names_until = "soon"'), "server[1].old_names_until"),
        (server('old_names = { "a.*" = "a" }'), "server[1].old_names.a.*"),
        (server('path = "/token"'), "server[1].path"),
        (server('aliases = ["/a//mcp"]'), "server[1].aliases"),
        (server('path = "/a/mcp"\naliases = ["/a/mcp"]'), "server[1].aliases"),
        ('host = "0.0.0.0"', "issuer"),
        ('host = "0.0.0.0"\nissuer = "http://agent.example.org"', "issuer"),
        ('host = "0.0.0.0"\nissuer = "https://agent.example.org"\nauth = "none"', "auth"),
        ('host = "127.0.0.1:8000"\nallowed_hosts = ["http://a.example/x"]\nallowed_origins = ["a.example"]',
         "host allowed_hosts allowed_origins"),
        ('security_contact = ["security@a.example", "http://a.example", "mailto:a@b c", "tel:5"]',
         "security_contact security_contact security_contact security_contact"),
        ('issuer = "https://a/path"', "issuer"),
        ('issuer = "agent.example.org"', "issuer"),
        ('issuer = "https://me:pw@a.example"', "issuer"),
        ('issuer = "https://a.example:443"', "issuer"),
        ('auth = "none"\ntrusted_proxies = ["127.0.0.1"]', "auth"),
        ('trusted_proxies = ["10.0.0.1/8"]', "trusted_proxies"),
        ('tls_certificate = "x.pem"', "tls_certificate"),
        ('tls_certificate = "c"\ntls_key = "k"', "tls_certificate tls_key"),
        ('registration = "token"', "registration_token"),
        ('store = "env:DATABASE"\nstore_ca = "missing.pem"', "store_ca"),
        ("admin_port = 8420", "admin_port"),
    ],
    "addresses": [
        ('domain = ["agent.example.org"]', 'accept_terms'),
        ('accept_terms = true\ndomain = ["*.example.org"]', 'domain'),
        ('accept_terms = true\ndomain = ["Agent.example.org"]', 'domain'),
        ('accept_terms = true\ndomain = ["localhost"]', 'domain'),
        ('accept_terms = true\ndomain = ["192.0.2.1"]', 'domain'),
        ('accept_terms = true\ndomain = ["a.example.org:443"]', 'domain'),
        ('accept_terms = true\ndomain = ["a.org", "a.org"]', 'domain'),
        (DOMAIN + 'issuer = "https://other.example.org"', 'issuer'),
        (DOMAIN + 'tls_certificate = "a"\ntls_key = "b"', 'tls_certificate tls_key domain'),
        ("http_port = 80", 'http_port'),
        (DOMAIN + '[acme]\ndirectory = "http://ca.example.org/"', 'acme.directory'),
        (DOMAIN + '[acme]\neab_key_id = "one"', 'acme.eab_key'),
        (DOMAIN + '[acme]\neab_key_id = "one"\neab_key = "c2VjcmV0"', 'acme.eab_key'),
        (DOMAIN + '[acme]\ncontact = ["ann@example.org"]', 'acme.contact'),
        (DOMAIN + "[acme]\ndirectori = 1", 'acme.directori'),
        (DOMAIN + 'auth = "none"', 'auth'),
    ],
    "money": [
        (server("price = 0.01"), 'server[1].price'),
        (server('price = "$0.0000001"'), 'server[1].price'),
        (server('price = "1e-3"'), 'server[1].price'),
        (server('price = "-1"'), 'server[1].price'),
        (server('price = "$0"'), 'server[1].price'),
        (server("price = {}"), 'server[1].price'),
        (server('price = { exprssion = "1" }'), 'server[1].price.exprssion'),
        (tool('price = { function = "f", expression = "1" }'), 'server[1].tools.echo.price'),
        (tool('price = { function = "f x" }'), 'server[1].tools.echo.price.function'),
        (tool('price = { expression = "len(" }'), 'server[1].tools.echo.price.expression'),
        (tool('price = { expression = "1 / 3" }'), 'server[1].tools.echo.price.expression'),
        (tool('price = { expression = "1", most = "none" }'), 'server[1].tools.echo.price.most'),
        (tool('price = { asset = "USDC", amount = "1" }'), 'server[1].tools.echo.price.asset'),
        (PAID + tool('price = { asset = "USDC" }'), 'server[1].tools.echo.price'),
        (PAID + tool('price = { asset = "USDC", amount = "0" }'), 'server[1].tools.echo.price.amount'),
        (PAID + tool('price = { asset = "USDC", amount = "1.5" }'), 'server[1].tools.echo.price.amount'),
        (PAID + tool('price = { asset = "usdc", amount = "1", most = "$1" }'), 'server[1].tools.echo.price.most'),
        (tool('price_for = { root = "$1" }'), 'server[1].tools.echo.price_for.root'),
        (tool('price = "$1"\nprice_for = { user = "x" }'), 'server[1].tools.echo.price_for.user'),
        (tool('price = "$1"\nflow = "before"'), 'server[1].tools.echo.flow'),
        (tool('price = "$1"\ndedupe = "1d"'), 'server[1].tools.echo.dedupe'),
        (tool('price = "free"\ntrial = 3'), 'server[1].tools.echo.trial'),
        (tool('price = "plan"\nflow = "upfront"'), 'server[1].tools.echo.flow'),
        (server("anonymous_pay = true"), 'server[1].anonymous_pay'),
        ('[[plan]]\nname = "a"\n' + server(), 'plan[1]'),
        ('[[plan]]\nwords = "a"\n' + server(), 'plan[1].name'),
        ('[[plan]]\nname = "A b"\ncalls = 1\n' + server(), 'plan[1].name'),
        ('[[plan]]\nname = "a"\ncalls = 1\nunlimited = true\n' + server(), 'plan[1].unlimited'),
        ('[[plan]]\nname = "a"\nprices = { "x y" = "free" }\n' + server(), 'plan[1].prices.x y'),
        ('[[plan]]\nname = "a"\ntool_calls = { "b/x" = 1 }\n' + server(), 'plan[1].tool_calls.b/x'),
        ('[[plan]]\nname = "a"\nprices = { x = "$0" }\n' + server(), 'plan[1].prices.x'),
        ('[[plan]]\nname = "a"\ncalls = 1\nprice = "x"\n' + server(), 'plan[1].price'),
        ('[[plan]]\nname = "a"\ncalls = 1\n[[plan]]\nname = "a"\ncalls = 2\n' + server(), 'plan[2].name'),
        ("payments = 1\n" + server(), 'payments'),
        ('[payments]\ndeposit_least = "some"\n' + server(), 'payments.deposit_least'),
        ('[payments]\ndeposit_most = "$0"\n' + server(), 'payments.deposit_most'),
        ('[payments]\ndeposit_least = "$5"\ndeposit_most = "$4"\n' + server(), 'payments.deposit_least'),
        ("[payments]\npayto = 1\n" + server(), 'payments.payto'),
        ('[payments]\npay_to = "me"\n' + server(), 'payments.pay_to'),
        (f'[payments]\npay_to = "{MINE[:-2]}e7"\n' + server(), 'payments.pay_to'),
        (f'[payments]\npay_to = "0x{"0" * 40}"\n' + server(), 'payments.pay_to'),
        ('[payments]\nnetworks = ["solana"]\n' + server(), 'payments.networks[1]'),
        ('[payments]\nnetworks = ["base", "eip155:8453"]\n' + server(), 'payments.networks[2]'),
        ('[payments]\nnetworks = ["eip155:31337"]\n' + server(), 'payments.networks[1]'),
        ('[payments]\n[[payments.asset]]\nnetwork = "eip155:31337"\nname = "C"\nversion = "1"\n'
            + server(), 'payments.asset[1].address'),
        (f'[payments]\n[[payments.asset]]\nnetwork = "base"\naddress = "{TOKEN}"\nversion = "1"\n'
            + server(), 'payments.asset[1].name'),
        ('[payments]\n[[payments.asset]]\nnetwork = "base"\nsymbol = "EURC"\n' + server(), 'payments.asset[1]'),
        ('[payments]\n[[payments.asset]]\nnetwork = "base"\n[[payments.asset]]\nnetwork = "base"\n'
            + server(), 'payments.asset[2]'),
        ('[payments]\n[[payments.facilitator]]\nurl = "http://f.example"\n' + server(), 'payments.facilitator[1].url'),
        ('[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nkey_id = "env:I"\n' + server(), 'payments.facilitator[1]'),
        ('[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nkey_id = "env:I"\nkey_secret = "s3cret"\n'
            + server(), 'payments.facilitator[1].key_secret'),
        ('[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nkey_id = "env:I"\nkey_secret = "env:S"\n'
            'headers = { Authorization = "env:A" }\n' + server(), 'payments.facilitator[1].headers.authorization'),
        ('[payments]\n[[payments.facilitator]]\nurl = "https://u:p@f.example"\n' + server(), 'payments.facilitator[1].url'),
        ('[payments]\n[[payments.facilitator]]\nurl = "https://f.example"\nnetworks = ["base"]\n'
            + server(), 'payments.facilitator[1].networks'),
        ('[payments]\nrpc = { base = "https://n.example" }\n' + server(), 'payments.rpc'),
        ('[payments]\ncaps = { per_day = "5 dollars" }\n' + server(), 'payments.caps.per_day'),
        ('[payments]\ncaps = { per_week = "$5" }\n' + server(), 'payments.caps.per_week'),
        ("[payments]\nmax_timeout_seconds = 5\n" + server(), 'payments.max_timeout_seconds'),
    ],
    "rights": [
        (server('auth = "open"'), 'server[1].auth'),
        *((tool(f"{name} = true"), f"server[1].tools.echo.{name}") for name in ("read_only", "readOnlyHint", "destructive")),
        *((COMMAND + line, f"server[1].agent[1].tool[1].{line.partition(' ')[0]}") for line in (
            "readonly = true", "readOnlyHint = true", "destructiveHint = true", "annotations = { readOnly = true }")),
        (server("accepts = []"), 'server[1].accepts'),
        (server('accepts = ["cookie"]'), 'server[1].accepts'),
        (server('tokens = [{ name = "ci" }]'), 'server[1].tokens[1].token'),
        (server('tokens = [{ name = "ci", token = "abc" }]'), 'server[1].tokens[1].token'),
        (server('tokens = [{ name = "C I", token = "env:T" }]'), 'server[1].tokens[1].name'),
        (server('tokens = [{ name = "ci", token = "env:T", scope = "root" }]'), 'server[1].tokens[1].scope'),
        (server('tokens = [{ name = "ci", token = "env:T", scope = "" }]'), 'server[1].tokens[1].scope'),
        (server('tokens = [{ name = "ci", token = "env:T", tools = "a b" }]'), 'server[1].tokens[1].tools'),
        (server('tokens = [{ name = "ci", token = "env:T" }, { name = "ci", token = "env:U" }]'), 'server[1].tokens[2].name'),
        (server('auth = "none"\ntokens = [{ name = "ci", token = "env:T" }]'), 'server[1].tokens'),
        (server('default_tools = "a,,b"'), 'server[1].default_tools'),
        (server("", "[server.groups]\nall = []"), 'server[1].groups.all'),
        (server("", '[server.tools.echo]\ntier = "reed"'), 'server[1].tools.echo.tier'),
        (server("", "[server.tools.echo]\nenabeld = false"), 'server[1].tools.echo.enabeld'),
        (server("", '[server.tools.echo]\nscope = "billing:read"'), 'server[1].tools.echo.scope'),
        ('[[scope]]\nname = "Billing"\ndescription = "x"\n' + server(), 'scope[1].name'),
        ('[[scope]]\nname = "mcp:x"\ndescription = "x"\n' + server(), 'scope[1].name'),
        ('[[scope]]\nname = "offline_access"\ndescription = "x"\n' + server(), 'scope[1].name'),
        ('[[scope]]\nname = "a"\n' + server(), 'scope[1].description'),
        ('[[scope]]\nname = "a"\ndescription = "x"\n[[scope]]\nname = "a"\ndescription = "y"\n' + server(), 'scope[2].name'),
        ('[[scope]]\nname = "a"\ndescription = "x"\n'
            '[[scope]]\nname = "a:pay"\ndescription = "y"\nfinancial = true\n' + server(), 'scope[2].financial'),
    ],
    "upstreams": [
        (GITHUB, 'upstream[1].allow'),
        (GITHUB + "allow = []", 'upstream[1].allow'),
        (GITHUB + 'allow = ["alice"]', 'upstream[1].allow'),
        (GITHUB + 'allow = "*"', 'upstream[1].allow'),
        (GITHUB + 'allow = [{ subject = "*", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (GITHUB + 'allow = [{ subject = "octocat", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (GITHUB + 'allow = [{ subject = "login:*", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (GITHUB + 'allow = [{ subject = "email:a@b.c", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (GITHUB + 'allow = [{ subject = "5", user = "al ice" }]', 'upstream[1].allow[1].user'),
        (GITHUB + 'allow = [{ subject = "5" }]', 'upstream[1].allow[1].user'),
        (GITHUB + 'allow = [{ subject = "5", user = "a", admin = true }]', 'upstream[1].allow[1].admin'),
        (GITHUB + 'allow = [{ subject = "login:A", user = "a" }, { subject = "login:a", user = "b" }]', 'upstream[1].allow[2].subject'),
        (GITHUB.replace("env:GITHUB_SECRET", "s3cret-in-clear") + ALLOW, 'upstream[1].client_secret'),
        (GITHUB.replace('client_secret = "env:GITHUB_SECRET"\n', "") + ALLOW, 'upstream[1].client_secret'),
        (GITHUB + 'issuer = "https://ghe.example/"\n' + ALLOW, 'upstream[1].issuer'),
        (OIDC.replace('issuer = "https://login.example.org"\n', "") + ALLOW, 'upstream[1].issuer'),
        (OIDC.replace("https://", "http://") + ALLOW, 'upstream[1].issuer'),
        (OIDC.replace("https://", "https://me:pw@") + ALLOW, 'upstream[1].issuer'),
        (OIDC + 'allow = [{ subject = "*", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (OIDC + 'allow = [{ subject = "*@example.org", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (OIDC + 'allow = [{ subject = "email:", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (OIDC + 'allow = [{ subject = "email:@example.org", user = "alice" }]', 'upstream[1].allow[1].subject'),
        (OIDC.replace('"oidc"', '"saml"') + ALLOW, 'upstream[1].kind'),
        (OIDC.replace('"work"', '"a/b"') + ALLOW, 'upstream[1].name'),
        (GITHUB + "assertions = true\n" + ALLOW, 'upstream[1].assertions'),
        (OIDC + 'assertions = "yes"\n' + ALLOW, 'upstream[1].assertions'),
        (OIDC + "assertions = true\n", 'upstream[1].allow'),
        (OIDC + "scopes = []\n" + ALLOW, 'upstream[1].scopes'),
    ],
    "telemetry": [
        ("[telemetry]\ntraces = 0.5", 'telemetry.otlp'),
        ('[telemetry]\notlp = "127.0.0.1:4318"', 'telemetry.otlp'),
        ('[telemetry]\notlp = "http://x:1?key=s3cret"', 'telemetry.otlp'),
        ('[telemetry]\notlp = "http://user:s3cret@x:1"', 'telemetry.otlp'),
        (OTLP + 'ca_file = "ca.pem"', 'telemetry.ca_file'),
        (OTLP + 'headers = { host = "env:KEY" }', 'telemetry.headers.host'),
        (OTLP + 'headers = { "a b" = "env:KEY" }', 'telemetry.headers'),
        (OTLP + 'traces = 1.5', 'telemetry.traces'),
        (OTLP + 'metrics_seconds = 2', 'telemetry.metrics_seconds'),
        (OTLP + 'sample = 2', 'telemetry.sample'),
    ],
    "limits": [
        ('[limits]\naddress = "60"', 'limits.address'),
        ('[limits]\ncaller = "0/min"', 'limits.caller'),
        ('[limits]\nquota = "5/min"', 'limits.quota'),
        ("[limits]\ncalls_at_once = -1", 'limits.calls_at_once'),
        ("[limits]\nper_ip = 5", 'limits.per_ip'),
        (server('limits = { caller = "x" }'), 'server[1].limits.caller'),
        (server('[server.tools.echo]\nlimit = "often"'), 'server[1].tools.echo.limit'),
        (server('[server.tools.echo]\nquota = "5"'), 'server[1].tools.echo.quota'),
    ],
    "store": [
        ('store = "postgresql://u:hunter2@db.example.org/x"', 'store'),
        ('store = "postgres://u:hunter2@db.example.org/x"', 'store'),
        ('store = "jdbc:postgresql://db.example.org/x?password=hunter2"', 'store'),
        ('store = "postgresql+psycopg://u:hunter2@db.example.org/x"', 'store'),
        ('store = "host=db.example.org password=hunter2 dbname=x"', 'store'),
        ('store = "env:postgresql://u:hunter2@db.example.org/x"', 'store'),
        ('store = "file:postgresql://u:hunter2@db.example.org/x"', 'store'),
        ('store = "postgres"', 'store'),
        ('store = "PostgreSQL"', 'store'),
        ('store = "mysql://u:hunter2@h/x"', 'store'),
        ('store = "sqlite"', 'store'),
        ('store = "sqlite:///ostiary.db"', 'store'),
        ('store = "env:"', 'store'),
        ('store = "file:"', 'store'),
        ('store = "/etc/ostiary/database"', 'store'),
        ('store = "~/database"', 'store'),
        ('store = "hunter2"', 'store'),
    ],
}  # fmt: skip
UNPAYABLE: Final = [
    server('price = "$0.01"'),
    "[payments]\nwallets = false\n" + server('price = "$0.01"'),
    "[payments]\n" + server('price = "$0.01"'),
    '[payments]\nnetworks = ["base"]\n' + FACILITATOR + server('price = "$0.01"'),
    f'[payments]\npay_to = "{MINE}"\nnetworks = ["base"]\n' + server('price = "$0.01"'),
    PAID + server('price = "$0.01"', '[server.tools.echo]\nprice = "plan"'),
    f'[payments]\npay_to = "{MINE}"\n{FACILITATOR}'
    f'[[payments.asset]]\nnetwork = "base"\naddress = "{TOKEN}"\nname = "C"\nversion = "1"\ndecimals = 2\n'
    + server('price = "$0.001"'),
]


def shown(text: str, said: Sequence[str]) -> str:
    written = [f"| {line}" for line in text.splitlines() if line]
    return "\n".join([*written, *said])


def test_what_cannot_be_meant_is_refused_by_its_key(
    tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    transcripts: list[str] = []
    for area, cases in REFUSED.items():
        transcripts.append(f"── {area}")
        for text, keys in cases:
            with pytest.raises(ConfigInvalid) as caught:
                settled(tmp_path, text)
            found = caught.value.problems
            said = [str(problem).replace(f"{tmp_path}/", "") for problem in found]
            assert (text, " ".join(problem.key for problem in found)) == (text, keys), said
            assert not [secret for secret in SECRETS if secret in str(said)]
            transcripts.append(shown(text, said))
    snapshot("refused_settings", "\n\n".join(transcripts))


def test_prices_that_nobody_could_pay_are_said(tmp_path: Path, snapshot: Snapshot) -> None:
    transcripts: list[str] = []
    for text in UNPAYABLE:
        resolved = settled(tmp_path, text)
        (said,) = unpayable(resolved.payments, resolved.plans, resolved.servers)
        transcripts.append(shown(text, [said]))
    snapshot("unpayable_prices", "\n\n".join(transcripts))
