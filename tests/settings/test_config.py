"""Settings: one file, overridden by the environment and flags; everything wrong is said at once."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.settings.resolved_settings import Resolved, resolve
from server.settings.setting_shapes import Config
from server.settings.settings_reader import (
    AGENT_KINDS,
    ConfigInvalid,
    LoadedSettings,
    find_file,
    load,
    misspelt,
)
from server.settings.settings_template import commented_configuration
from tests.made_certificates import Authority


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "ostiary.toml"
    file.write_text(text, "utf-8")
    return file


def problems_of(tmp_path: Path, text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        load(written(tmp_path, text), environment)
    return [str(problem) for problem in caught.value.problems]


def loaded(**flags: object) -> LoadedSettings:
    return load(None, {}, flags)


def resolve_problems(**flags: object) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        resolve(loaded(**flags))
    return [str(problem) for problem in caught.value.problems]


def test_without_a_file_everything_has_a_default_and_a_demo_agent_is_served() -> None:
    settings = loaded()
    assert settings.config == Config()
    assert [server.name for server in settings.servers] == ["main"]
    assert len(settings.servers[0].agents) == 1


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "port = 1\ndrain_seconds = 1\nlog_level = 'error'")
    settings = load(file, {"OSTIARY_PORT": "2", "OSTIARY_DRAIN_SECONDS": "2.5"}, {"port": 3})
    assert (settings.config.port, settings.config.drain_seconds, settings.config.log_level) == (
        3,
        2.5,
        "error",
    )


def test_environment_and_flags_can_carry_lists_and_switches() -> None:
    settings = load(None, {"OSTIARY_ALLOWED_HOSTS": "a.example, b.example"}, {"allow_insecure_http": "true"})
    assert settings.config.allowed_hosts == ("a.example", "b.example")
    assert settings.config.allow_insecure_http is True


def test_every_problem_is_reported_at_once_with_its_key_and_what_to_write_instead(tmp_path: Path) -> None:
    text = 'prot = 8420\nport = 99999\nlog_level = "loud"\n[[server]]\nname = "Bad Name"\ntitel = "x"\n[[server.agent]]\nkind = "robot"\n'
    found = problems_of(tmp_path, text, OSTIARY_DRAIN_SECONDS="soon")
    assert [problem.partition(":")[0] for problem in found] == [
        "prot",
        "port",
        "log_level",
        "server[1].name",
        "server[1].titel",
        "server[1].agent[1].kind",
        "OSTIARY_DRAIN_SECONDS",  # what does not stand in the file comes last
    ]
    assert all(f'"{kind}"' in found[5] for kind in AGENT_KINDS)


def test_a_server_without_agents_or_with_a_name_used_twice_is_refused(tmp_path: Path) -> None:
    assert "agent: is missing" in problems_of(tmp_path, '[[server]]\nname = "a"')[0]
    twice = '[[server]]\nname = "a"\n[[server.agent]]\nkind = "demo"\n' * 2
    assert "used twice" in problems_of(tmp_path, twice)[0]


def test_a_file_that_is_not_toml_or_not_there_is_named(tmp_path: Path) -> None:
    assert "cannot be read" in problems_of(tmp_path, "port = = 1")[0]
    with pytest.raises(ConfigInvalid):
        find_file(str(tmp_path / "absent.toml"), {})


def test_the_commented_file_is_valid_names_every_setting_and_says_the_defaults(tmp_path: Path) -> None:
    text = commented_configuration()
    named = set(Config.__struct_fields__)
    assert {line.removeprefix("# ").partition(" = ")[0] for line in text.splitlines()} >= named
    assert load(written(tmp_path, text), {}).config == Config()
    settings, head, servers = text.partition("# ── What is served")
    uncommented = "\n".join(
        line[2:] if " = " in line and line.startswith("# ") and line[2:].split(" = ")[0] in named else line
        for line in settings.splitlines()
    )
    assert load(written(tmp_path, f"{uncommented}\n{head}{servers}"), {}).config == Config()


SETTING = re.compile(r"# (?:\[|[a-z_]+ *= )")
OF_SERVERS = commented_configuration().partition("# ── What is served")
BLOCKS = OF_SERVERS[2].split("\n\n")
REFERENCES = dict.fromkeys(re.findall(r"env:([A-Z_]+)", OF_SERVERS[2]), "x" * 40)


def without_hashes(block: str) -> str:
    lines = [line[2:] if SETTING.match(line) else line for line in block.splitlines()]
    return "\n".join(lines).replace("0x…", "0x52908400098527886E0F7030069857D2E4169EE7")


@pytest.mark.parametrize(
    "wanted",
    [*([place] for place, block in enumerate(BLOCKS) if without_hashes(block) != block), range(len(BLOCKS))],
    ids=lambda wanted: "all" if len(wanted) > 1 else BLOCKS[wanted[0]].split("\n")[0][:40],
)
def test_what_the_commented_file_has_for_servers_works_once_its_hashes_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Sequence[int]
) -> None:
    for name, value in REFERENCES.items():
        monkeypatch.setenv(name, value)
    blocks = [without_hashes(block) if place in wanted else block for place, block in enumerate(BLOCKS)]
    text = OF_SERVERS[0] + OF_SERVERS[1] + "\n\n".join(blocks)
    resolve(load(written(tmp_path, text), REFERENCES))


def test_a_setting_of_a_server_below_its_agents_is_sent_back_there(tmp_path: Path) -> None:
    text = '[[server]]\n[[server.agent]]\nkind = "demo"\nprice = "$0.01"\n'
    (problem,) = problems_of(tmp_path, text)
    assert "price: is not a setting" in problem and "[[server]]" in problem


def test_on_loopback_the_issuer_is_made_from_the_port() -> None:
    settings: Resolved = resolve(loaded())
    assert settings.loopback
    assert settings.canonical_issuer(1234) == "http://127.0.0.1:1234"
    assert settings.paths == {"main": "/mcp"}


@pytest.mark.requirement("safety.loopback")
def test_listening_on_the_network_needs_an_issuer_with_https_and_a_login() -> None:
    assert "issuer: is needed" in resolve_problems(host="0.0.0.0")[0]
    assert "unencrypted" in resolve_problems(host="0.0.0.0", issuer="http://agent.example.org")[0]
    assert "anybody" in resolve_problems(host="0.0.0.0", issuer="https://agent.example.org", auth="none")[0]
    settings = resolve(loaded(host="0.0.0.0", issuer="https://agent.example.org/"))
    assert not settings.loopback
    assert settings.canonical_issuer(1) == "https://agent.example.org"


@pytest.mark.parametrize(
    "issuer",
    [
        "ftp://a",
        "https://",
        "https://a/path",
        "https://u@a",
        "https://a?x",
        "https://A.example",
        "https://ä.example",
        "https://a.example//",
        "https://a:99999",
    ],
)
def test_an_issuer_that_is_not_scheme_and_host_is_refused(issuer: str) -> None:
    assert resolve_problems(issuer=issuer)[0].startswith("issuer:")


@pytest.mark.parametrize("port", ["http://127.0.0.1:80", "https://a.example:443"])
def test_an_issuer_with_the_port_it_has_anyway_is_refused_because_clients_leave_that_out(port: str) -> None:
    found = resolve_problems(issuer=port)[0]
    assert found.endswith(f'write "{port.rpartition(":")[0]}"')


def test_names_that_no_request_could_match_are_refused_and_not_skipped() -> None:
    found = resolve_problems(
        host="127.0.0.1:8000", allowed_hosts="b.example, http://a.example/x", allowed_origins="*, a.example"
    )
    assert [problem.partition('" ')[0] for problem in found] == [
        'host: "127.0.0.1:8000',
        'allowed_hosts: "http://a.example/x',
        'allowed_origins: "a.example',
    ]
    for host in ("::1", "[::1]", "localhost", "127.0.0.2"):
        assert resolve(loaded(host=host)).loopback


def test_without_a_login_no_proxy_may_pass_strangers_on() -> None:
    assert resolve_problems(auth="none", trusted_proxies="127.0.0.1")[0].startswith("auth:")


def test_a_loopback_address_of_ones_own_is_what_callers_are_told() -> None:
    assert resolve(loaded(host="127.0.0.2")).canonical_issuer(1) == "http://127.0.0.2:1"
    assert resolve(loaded(host="[::1]")).canonical_issuer(1) == "http://127.0.0.1:1"


def test_a_problem_on_the_command_line_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "port = 1")
    with pytest.raises(ConfigInvalid, match="1 problem in the settings"):
        load(file, {}, {"port": "x"})
    with pytest.raises(ConfigInvalid, match=r"2 problems in .*ostiary\.toml"):
        load(written(tmp_path, "server = 1"), {}, {"port": "x"})


def test_a_file_that_is_not_utf_8_is_called_that(tmp_path: Path) -> None:
    file = tmp_path / "ostiary.toml"
    file.write_bytes(b"\xff\xfe port = 1")
    with pytest.raises(ConfigInvalid) as caught:
        load(file, {})
    assert "is not text in UTF-8" in str(caught.value.problems[0])


def test_the_authorities_of_a_database_are_looked_at_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "none.pem").write_text("no certificate", "utf-8")
    known = Authority(tmp_path).file
    for file, said in (
        ("~/missing.pem", "No such file"),
        ("~/none.pem", "no certificate"),
    ):
        (problem,) = resolve_problems(store="env:DATABASE", store_ca=file)
        assert problem.startswith("store_ca:")
        assert said in problem
    resolve(loaded(store="env:DATABASE", store_ca=f"~/{known.relative_to(tmp_path)}"))


def test_a_certificate_without_its_key_or_with_a_wrong_path_is_refused(tmp_path: Path) -> None:
    assert "belong together" in resolve_problems(tls_certificate="x.pem")[0]
    absent = resolve_problems(tls_certificate=str(tmp_path / "c"), tls_key=str(tmp_path / "k"))
    assert [problem.partition(":")[0] for problem in absent] == ["tls_certificate", "tls_key"]
    for name in ("c", "k"):
        (tmp_path / name).write_text("junk", "utf-8")
    (junk,) = resolve_problems(tls_certificate=str(tmp_path / "c"), tls_key=str(tmp_path / "k"))
    assert junk.startswith("tls_certificate:")


def test_registration_with_a_token_needs_one_by_reference() -> None:
    (problem,) = resolve_problems(registration="token")
    assert problem.startswith("registration_token:")
    assert "env:NAME" in problem
    (clear,) = resolve_problems(registration="token", registration_token="hunter2")
    assert clear.startswith("registration_token:") and "env:NAME" in clear and "hunter2" not in clear
    for flags in ({"registration": "token", "registration_token": "env:X"}, {"registration": "off"}):
        assert resolve(loaded(**flags)).config.registration == flags["registration"]


def test_proxies_are_networks() -> None:
    assert "not a network" in resolve_problems(trusted_proxies="10.0.0.1/8")[0]
    assert len(resolve(loaded(trusted_proxies="10.0.0.0/8, ::1")).trusted_proxies) == 2


def test_further_servers_get_paths_of_their_own(tmp_path: Path) -> None:
    text = "".join(
        f'[[server]]\nname = "{name}"\n[[server.agent]]\nkind = "demo"\n' for name in ("one", "two")
    )
    assert resolve(load(written(tmp_path, text), {})).paths == {"one": "/mcp", "two": "/two/mcp"}


def test_a_variable_that_looks_like_a_setting_is_questioned_and_an_agents_secret_is_not() -> None:
    variables = {
        "OSTIARY_PORTT": "1",
        "OSTIARY_PORT": "1",
        "OSTIARY_CONFIG_HOME": "/x",
        "OSTIARY_AGENT_SECRET": "x",
        "PORTT": "1",
    }
    assert misspelt(variables) == ["OSTIARY_PORTT is not a setting; did you mean OSTIARY_PORT?"]


SSE = '[[server]]\ncompat = { sse = true }\n[[server.agent]]\nkind = "demo"\n'


@pytest.mark.parametrize("workers", ["2", '"auto"'])
def test_streams_that_one_process_knows_are_refused_where_several_serve(
    tmp_path: Path, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.settings.resolved_settings._processors", lambda: 2)
    text = f'store = "env:DATABASE"\nworkers = {workers}\n' + SSE
    with pytest.raises(ConfigInvalid) as caught:
        resolve(load(written(tmp_path, text), {}))
    (problem,) = caught.value.problems
    assert problem.key == "server[1].compat.sse" and "2 processes" in str(problem)


@pytest.mark.parametrize("head", ["", 'workers = "auto"\n', 'store = "env:DATABASE"\nworkers = 1\n'])
def test_one_process_may_serve_the_oldest_transport(
    tmp_path: Path, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.settings.resolved_settings._processors", lambda: 2)
    assert resolve(load(written(tmp_path, head + SSE), {})).workers == 1


def test_compatibility_switches_that_do_not_exist_are_refused_with_those_that_do(tmp_path: Path) -> None:
    text = '[[server]]\ncompat = { invalid_arguments = -1, tasks = "none", task = "core" }\n[[server.agent]]\nkind = "demo"\n'
    found = problems_of(tmp_path, text)
    for problem, there_is in zip(found, ("-32602", '"core" or "wasmagent"', "tasks"), strict=True):
        assert problem.endswith(f"write {there_is}")


AGENT = '[[server.agent]]\nkind = "demo"\n'


def test_a_server_may_have_a_path_of_its_own_and_further_ones(tmp_path: Path) -> None:
    text = (
        f'[[server]]\nname = "main"\naliases = ["/api/mcp", "/api/platform/main/mcp"]\n{AGENT}'
        f'[[server]]\nname = "second"\npath = "/weather/mcp"\n{AGENT}[[server]]\nname = "third"\n{AGENT}'
    )
    resolved = resolve(load(written(tmp_path, text), {}))
    assert dict(resolved.paths) == {"main": "/mcp", "second": "/weather/mcp", "third": "/third/mcp"}
    assert dict(resolved.aliases) == {"/api/mcp": "main", "/api/platform/main/mcp": "main"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('aliases = ["/second/mcp"]', ""),
        ("", 'path = "/mcp"'),
        ('path = "/a/mcp"\naliases = ["/a/mcp"]', ""),
        ('aliases = ["/a/mcp"]', 'aliases = ["/a/mcp"]'),
    ],
)
def test_two_servers_at_one_path_are_refused(tmp_path: Path, first: str, second: str) -> None:
    text = f'[[server]]\nname = "main"\n{first}\n{AGENT}[[server]]\nname = "second"\n{second}\n{AGENT}'
    with pytest.raises(ConfigInvalid) as caught:
        resolve(load(written(tmp_path, text), {}))
    (problem,) = caught.value.problems
    assert "already; write a path of its own" in str(problem)


@pytest.mark.parametrize(
    "path",
    ["/token", "/api", "api/mcp", "/a//mcp", "/../mcp", "/a b/mcp", "/mcp/", "/.well-known/mcp", "/é/mcp"],
)
def test_a_path_ends_in_mcp_and_is_written_as_it_comes(tmp_path: Path, path: str) -> None:
    for setting in (f'path = "{path}"', f'aliases = ["{path}"]'):
        (problem,) = problems_of(tmp_path, f'[[server]]\nname = "main"\n{setting}\n{AGENT}')
        assert problem.startswith("server[1].")
        assert "/mcp" in problem
