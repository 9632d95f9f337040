"""`[[upstream]]`: what is refused when it is read, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.settings.reading import ConfigInvalid, load
from server.settings.resolve import Resolved, resolve
from server.settings.secret import SecretUnreadable
from server.settings.template import commented_configuration
from server.settings.upstreams import providers

GITHUB = 'name = "github"\nkind = "github"\nclient_id = "x"\nclient_secret = "env:GITHUB_SECRET"\n'
OIDC = 'name = "work"\nkind = "oidc"\nclient_id = "x"\nissuer = "https://login.example.org"\n'
ALLOW = 'allow = [{ subject = "583231", user = "alice" }]\n'


def read(tmp_path: Path, *tables: str) -> Resolved:
    file = tmp_path / "ostiary.toml"
    file.write_text("".join(f"[[upstream]]\n{table}\n" for table in tables), "utf-8")
    return resolve(load(file, {}))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (GITHUB, "upstream[1].allow: names nobody, so nobody could sign in with it"),
        (GITHUB + "allow = []", "upstream[1].allow: names nobody"),
        (GITHUB + 'allow = ["alice"]', "upstream[1].allow: cannot be a list"),
        (GITHUB + 'allow = "*"', "upstream[1].allow: cannot be"),
        (GITHUB + 'allow = [{ subject = "*", user = "alice" }]', '"*" is nobody at GitHub'),
        (GITHUB + 'allow = [{ subject = "octocat", user = "alice" }]', '"octocat" is nobody at GitHub'),
        (GITHUB + 'allow = [{ subject = "login:*", user = "alice" }]', '"login:*" is nobody at GitHub'),
        (GITHUB + 'allow = [{ subject = "email:a@b.c", user = "alice" }]', "is nobody at GitHub"),
        (GITHUB + 'allow = [{ subject = "5", user = "al ice" }]', '"al ice" cannot be a name here'),
        (GITHUB + 'allow = [{ subject = "5" }]', "upstream[1]"),
        (GITHUB + 'allow = [{ subject = "5", user = "a", admin = true }]', "is not a setting"),
        (
            GITHUB + 'allow = [{ subject = "login:A", user = "a" }, { subject = "login:a", user = "b" }]',
            '"login:a" is listed twice',
        ),
        (GITHUB.replace("env:GITHUB_SECRET", "s3cret-in-clear") + ALLOW, "upstream[1].client_secret"),
        (
            GITHUB.replace('client_secret = "env:GITHUB_SECRET"\n', "") + ALLOW,
            'is needed with kind = "github"',
        ),
        (GITHUB + 'issuer = "https://ghe.example/"\n' + ALLOW, "ends with a slash"),
        (OIDC.replace('issuer = "https://login.example.org"\n', "") + ALLOW, 'is needed with kind = "oidc"'),
        (OIDC.replace("https://", "http://") + ALLOW, "is no address with https"),
        (OIDC.replace("https://", "https://me:pw@") + ALLOW, "is no address with https"),
        (OIDC + 'allow = [{ subject = "*", user = "alice" }]', '"*" names nobody'),
        (OIDC + 'allow = [{ subject = "*@example.org", user = "alice" }]', "names nobody"),
        (OIDC + 'allow = [{ subject = "email:", user = "alice" }]', "names nobody"),
        (OIDC + 'allow = [{ subject = "email:@example.org", user = "alice" }]', "names nobody"),
        (OIDC.replace('"oidc"', '"saml"') + ALLOW, 'cannot be "saml"; write "oidc" or "github"'),
        (OIDC.replace('"work"', '"a/b"') + ALLOW, 'cannot be "a/b"'),
        (GITHUB + "assertions = true\n" + ALLOW, 'upstream[1].assertions: are for kind = "oidc"'),
        (OIDC + 'assertions = "yes"\n' + ALLOW, "upstream[1].assertions"),
        (OIDC + "assertions = true\n", "upstream[1].allow: names nobody"),
        (OIDC + "scopes = []\n" + ALLOW, "upstream[1].scopes: is not a setting"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read(tmp_path, table)
    said = "\n".join(str(each) for each in caught.value.problems)
    assert problem in said
    assert "s3cret" not in said


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="1 problem"):
        read(tmp_path, GITHUB + ALLOW, GITHUB + ALLOW)


def test_one_issuer_vouches_by_one_list(tmp_path: Path) -> None:
    other = OIDC.replace('"work"', '"again"')
    with pytest.raises(ConfigInvalid) as caught:
        read(tmp_path, OIDC + "assertions = true\n" + ALLOW, other + "assertions = true\n" + ALLOW)
    (problem,) = caught.value.problems
    assert str(problem).startswith("upstream[2].assertions: are taken from")
    resolved = read(tmp_path, OIDC + "assertions = true\n" + ALLOW, other + ALLOW)
    assert [each.assertions for each in providers(resolved.upstreams).values()] == [True, False]


def test_it_comes_to_providers_with_their_secrets_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SECRET", "s3cret")
    people = '{ subject = "login:OctoCat", user = "Bob" }, { subject = "7", user = "alice" }'
    resolved = read(
        tmp_path,
        GITHUB + f"allow = [{people}]",
        OIDC + 'allow = [{ subject = "email:A@B.example", user = "alice" }]',
    )
    github, work = providers(resolved.upstreams).values()
    assert (github.label, github.issuer) == ("GitHub", "https://github.com")
    assert github.secret is not None and github.secret.reveal() == "s3cret"
    assert github.allow == {"login:octocat": "bob", "7": "alice"}
    assert (work.label, work.secret, work.allow) == ("work", None, {"email:a@b.example": "alice"})
    assert "s3cret" not in repr(github)


def test_a_secret_that_cannot_be_read_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_SECRET", raising=False)
    with pytest.raises(SecretUnreadable, match="GITHUB_SECRET"):
        providers(read(tmp_path, GITHUB + ALLOW).upstreams)


def test_there_are_none_without_a_table(tmp_path: Path) -> None:
    assert read(tmp_path).upstreams == ()


def test_what_the_template_shows_of_it_can_be_used(tmp_path: Path) -> None:
    lines = commented_configuration().partition("# [[upstream]]")[2].splitlines()
    text = "[[upstream]]\n" + "\n".join(line.removeprefix("# ") for line in lines)
    file = tmp_path / "ostiary.toml"
    file.write_text(text, "utf-8")
    assert [each.name for each in resolve(load(file, {})).upstreams] == ["github", "work"]
