"""E-mail addresses that a provider vouches for: compared letter by letter, but for capitals of ASCII."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from auth.providers import provider_sign_in as upstream
from server.settings.provider_settings import providers
from server.settings.resolved_settings import resolve
from server.settings.settings_reader import load
from tests.auth.enterprise_fakes import company, provider
from tests.auth.identity_fakes import told


@pytest.mark.parametrize(
    "email",
    ["straße@example.org", "\u212aim@example.org", "o\ufb01ce@example.org", "\u017fue@example.org"],
)
def test_an_address_with_other_letters_is_another_address(email: str) -> None:
    listed = {"strasse@example.org", "kim@example.org", "ofice@example.org", "sue@example.org"}
    person = upstream.person_of("sub", {"email": email, "email_verified": True})
    assert not {f"email:{each}" for each in listed} & set(person.also)
    assert person.also == (f"email:{email}",)


async def test_whoever_verified_an_address_that_only_looks_the_same_is_not_let_in() -> None:
    allow = {"email:strasse@example.org": "bob"}
    async with company(provider(allow=allow)) as firm:
        mail: dict[str, Any] = {"email_verified": True}
        other = await firm.ask(firm.assertion(sub="else", email="straße@example.org", **mail))
        assert told(other)[:2] == (400, "invalid_grant")
        assert (await firm.ask(firm.assertion(sub="bob", email="Strasse@Example.org", **mail))).status == 200


def test_the_list_writes_addresses_as_the_provider_does(tmp_path: Path) -> None:
    file = tmp_path / "ostiary.toml"
    people = '{ subject = "email:Straße@example.org", user = "a" }, { subject = "email:Ann@B.example", user = "b" }'
    file.write_text(
        '[[upstream]]\nname = "work"\nkind = "oidc"\nclient_id = "x"\nissuer = "https://login.example.org"\n'
        f"allow = [{people}]\n",
        "utf-8",
    )
    (work,) = providers(resolve(load(file, {})).upstreams).values()
    assert work.allow == {"email:Straße@example.org": "a", "email:ann@b.example": "b"}
