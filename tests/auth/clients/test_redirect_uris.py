"""auth/clients/redirect_uris.py: where a client may ask a browser to be sent, and how an answer is put on it."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from auth.clients.redirect_uris import fits, host_of, is_acceptable, sources_of, with_answer


@pytest.mark.parametrize(
    "uri",
    [
        "https://client.example/callback",
        "https://client.example:8443/cb?x=1",
        "http://127.0.0.1/callback",
        "http://127.0.0.1:33418/",
        "http://[::1]:1234/cb",
        "http://localhost/callback",
        "com.example.app:/cb",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "vscode://host/path",
        "https://xn--bcher-kva.example/cb",
        "https://[2001:db8::1]:8443/cb",
        "https://192.0.2.1/cb",
        "http://127.0.0.1",
        "com.example.app://callback",
        "zed://mcp/callback",
    ],
)
def test_addresses_of_honest_clients_are_taken(uri: str) -> None:
    assert is_acceptable(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "javascript://x/%0aalert(1)",
        "JAVASCRIPT:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vbscript:x",
        "blob:https://a/b",
        "about:blank",
        "http://client.example/cb",
        "http://127.0.0.1.evil.example/cb",
        "http://localhost.evil.example/cb",
        "https:///cb",
        "https://user@client.example/cb",
        "https://client.example/a/../b",
        "https://client.example/%2e%2e/b",
        "https://client.example/cb#fragment",
        "https://client.example\\@evil.example/",
        "https://client.example/ cb",
        "https://client.example:port/cb",
        "https://client.ex\u00e4mple/cb",
        "//client.example/cb",
        "/cb",
        "JavaScript://x/%0aalert(1)",
        "java\tscript:alert(1)",
        " https://client.example/cb",
        "https://client.example/cb\n",
        "https://*.client.example/cb",
        "https://client.example/*",
        "https://client.example./cb",
        "https://client.example.:443/cb",
        "https://.client.example/cb",
        "https://a..b/cb",
        "https://client.example/%2E%2e/b",
        "https://client.example/..%2fb",
        "https://client.example/a/./b",
        "https://client.example/%00",
        "https://client.example/%0d%0aset-cookie:x=y",
        "https://client.example;script-src/cb",
        "https://client.example,evil.example/cb",
        "https://client.example%2eevil.example/cb",
        "https://client.example:99999/cb",
        "https://client.example:/cb",
        "https://client.example:443:443/cb",
        "https://:443/cb",
        "https://[::1/cb",
        "https://[fe80::1%25eth0]/cb",
        "https://[not-an-address]/cb",
        "http://0.0.0.0/cb",
        "http://192.168.1.4/cb",
        "http://[::ffff:192.0.2.1]/cb",
        "http://localhost@evil.example/cb",
        "http://localhost%40evil.example/cb",
        "http://localhost./cb",
        "http://LOCALHOST.evil.example/cb",
        "ftp://localhost/cb",
        "ws://localhost/cb",
        "view-source:https://client.example/",
        "filesystem:https://client.example/x",
        "intent://x#Intent;end",
        "mailto:a@client.example",
        "unknown-scheme://x/cb",
        "..:/cb",
        "com.example.app://user@host/cb",
        "com.example.app://a;b/cb",
        'https://client.example/"><script>',
        "http://127.0.0.1/cb';touch${IFS}x;'",
        "http://127.0.0.1/cb'",
        "http://127.0.0.1/cb?x=`id`",
        "https://client.example/{x}",
        "https://client.example/a|b",
        "https://client.example/a^b",
        "com.example.app:/cb'",
        "https://client.example/" + "a" * 2_048,
    ],
)
def test_addresses_that_execute_or_mislead_are_refused(uri: str) -> None:
    assert not is_acceptable(uri)


@pytest.mark.parametrize(
    ("registered", "asked"),
    [
        ("http://localhost/callback", "http://localhost:58229/callback"),
        ("http://127.0.0.1:38937/callback", "http://127.0.0.1:1/callback"),
        ("http://[::1]:9/cb", "http://[::1]/cb"),
        ("http://127.0.0.1:33418/", "http://127.0.0.1:50000/"),
        ("http://localhost:1/cb?fixed=1", "http://localhost:2/cb?fixed=1"),
        ("https://client.example/cb?x=1", "https://client.example/cb?x=1"),
        ("cursor://anysphere.cursor-mcp/oauth/callback", "cursor://anysphere.cursor-mcp/oauth/callback"),
    ],
)
def test_a_registered_address_fits_whatever_loopback_port_it_comes_with(registered: str, asked: str) -> None:
    assert fits(("https://other.example/", registered), asked)


@pytest.mark.parametrize(
    ("registered", "asked"),
    [
        ("http://localhost:1/callback", "http://127.0.0.1:1/callback"),
        ("http://127.0.0.1/callback", "http://localhost/callback"),
        ("http://127.0.0.1/callback", "http://127.0.0.2/callback"),
        ("http://127.0.0.2:1/callback", "http://127.0.0.2:2/callback"),
        ("http://[::1]/callback", "http://[0:0:0:0:0:0:0:1]/callback"),
        ("http://localhost/callback", "http://localhost/callback/"),
        ("http://localhost/callback", "http://localhost/callback/../x"),
        ("http://localhost/callback", "http://localhost/Callback"),
        ("http://localhost/callback", "http://localhost/callback?x=1"),
        ("http://localhost/callback?x=1", "http://localhost/callback"),
        ("http://localhost/callback", "https://localhost/callback"),
        ("http://localhost/callback", "http://localhost:1@evil.example/callback"),
        ("http://localhost/callback", "http://localhost:1.evil.example/callback"),
        ("http://localhost/callback", "http://localhost:99999999/callback"),
        ("http://localhost/callback", "http://localhost:70000/callback"),
        ("http://localhost/callback", "http://localhost:1/callback\n"),
        ("https://client.example/cb", "https://client.example:443/cb"),
        ("https://client.example:8443/cb", "https://client.example:8444/cb"),
        ("https://client.example/cb", "https://CLIENT.example/cb"),
        ("https://client.example/cb", "https://client.example/cb?x=1"),
        ("https://client.example/cb", "https://client.example/c"),
        ("https://client.example/cb", "https://client.example/cb.evil"),
        ("cursor://host/cb", "cursor://host/cb/x"),
        ("javascript:alert(1)", "javascript:alert(1)"),
    ],
)
def test_any_other_address_does_not_fit(registered: str, asked: str) -> None:
    assert not fits((registered,), asked)


@pytest.mark.parametrize(
    ("uri", "host", "source"),
    [
        ("http://localhost:5001/callback", "http://localhost", "http://localhost:5001"),
        ("http://[::1]:5001/callback", "http://[::1]", "http:"),
        ("https://client.example:8443/cb?x=1", "https://client.example:8443", "https://client.example:8443"),
        ("cursor://anysphere.cursor-mcp/cb", "cursor://anysphere.cursor-mcp", "cursor:"),
        ("com.example.app:/cb", "com.example.app:", "com.example.app:"),
    ],
)
def test_an_address_has_a_name_for_people_and_one_for_a_content_policy(
    uri: str, host: str, source: str
) -> None:
    assert (host_of(uri), sources_of(uri)) == (host, (source, "https:"))


@pytest.mark.parametrize(
    "uri",
    [
        "https://client.example/cb?iss=https://evil.example&keep=a%20b",
        "https://client.example/cb?%69ss=evil&keep=a%20b&code=stolen&state=old",
        "https://client.example/cb?keep=a%20b&iss&iss=&error=x",
    ],
)
def test_an_answer_comes_once_whatever_the_address_had_in_its_query(uri: str) -> None:
    answered = with_answer(uri, {"code": "c", "state": "s p", "iss": "https://as.example"})
    assert answered.startswith("https://client.example/cb?keep=a%20b&code=c&")
    assert parse_qsl(urlsplit(answered).query) == [
        ("keep", "a b"),
        ("code", "c"),
        ("state", "s p"),
        ("iss", "https://as.example"),
    ]


def test_an_answer_on_a_bare_address_begins_its_query() -> None:
    assert with_answer("com.example.app:/cb", {"code": "c"}) == "com.example.app:/cb?code=c"


def test_an_answer_stays_between_two_quotes_of_a_shell() -> None:
    said = {"code": "c", "state": "a';id;'`id`", "iss": "https://door.example/'"}
    assert "'" not in with_answer("http://127.0.0.1:1234/cb?own=$(id)", said)
