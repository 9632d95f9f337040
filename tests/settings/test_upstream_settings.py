"""`[[upstream]]`: what is refused when it is read, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.settings.provider_settings import providers
from server.settings.resolved_settings import Resolved
from server.settings.secret_reference import SecretUnreadable
from server.settings.settings_reader import ConfigInvalid
from server.settings.settings_template import commented_configuration
from tests.settings.written import ALLOW, GITHUB, OIDC, settled


def read(tmp_path: Path, *tables: str) -> Resolved:
    return settled(tmp_path, "\n".join(tables))


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="1 problem"):
        read(tmp_path, GITHUB + ALLOW, GITHUB + ALLOW)


def test_one_issuer_vouches_by_one_list(tmp_path: Path) -> None:
    other = OIDC.replace('"work"', '"again"')
    with pytest.raises(ConfigInvalid) as caught:
        read(tmp_path, OIDC + "assertions = true\n" + ALLOW, other + "assertions = true\n" + ALLOW)
    assert [problem.key for problem in caught.value.problems] == ["upstream[2].assertions"]
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
    assert [each.name for each in settled(tmp_path, text).upstreams] == ["github", "work"]
