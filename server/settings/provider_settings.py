"""`[[upstream]]`: providers that people may sign in with, and who of theirs is who here. The shape, and what is wrong with it together.

Off without a table, and open to nobody who is not listed: there is no way to write "anyone with an account".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from server.settings.secret_reference import read_secret, without_credentials

if TYPE_CHECKING:
    from auth.providers.provider_sign_in import Provider

_LOGIN: Final = re.compile(r"login:[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})")
_EMAIL: Final = re.compile(r"email:[^\s@]{1,64}@[^\s@]{1,190}")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,18}")


class UpstreamUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody there, and who that is here."""

    subject: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description='their subject there, e.g. "583231" or "email:ann@example.org"',
        ),
    ]
    user: Annotated[str, Meta(min_length=1, max_length=64, description="the name of an account here")]


class UpstreamConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider."""

    name: Annotated[
        str,
        Meta(
            pattern="^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
            description="lower-case letters, digits and dashes, at most 40",
        ),
    ]
    kind: Literal["oidc", "github"]
    client_id: Annotated[
        str, Meta(min_length=1, max_length=512, description="the id that the provider gave you")
    ]
    client_secret: Annotated[
        str, Meta(pattern="^$|^(env|file):.", description='a reference, "env:NAME" or "file:/path"')
    ] = ""
    issuer: Annotated[
        str, Meta(max_length=2048, description='its address, e.g. "https://accounts.google.com"')
    ] = ""
    label: Annotated[str, Meta(max_length=40, description="what people know it as")] = ""
    allow: Annotated[
        tuple[UpstreamUser, ...],
        Meta(max_length=1000, description='a list of { subject = "…", user = "alice" }'),
    ] = ()
    # What it says of them to programs lets those in, too (enterprise-managed authorization).
    assertions: bool = False


def faults(upstreams: Sequence[UpstreamConfig | None]) -> Iterable[tuple[str, str, str]]:
    """Say what is wrong: (key, what, what to write instead). None: one that is wrong by itself."""
    if not upstreams:
        return
    # Every command reads settings, and few of those have such a table.
    from server.lib.oauth_client.addresses import is_fit

    seen: set[str] = set()
    for place, each in enumerate(upstreams, 1):
        if each is None:
            continue
        where = f"upstream[{place}]"
        if each.name in seen:
            yield f"{where}.name", f'"{each.name}" is used twice', "a name of its own for each"
        seen.add(each.name)
        if each.kind == "oidc" and not each.issuer:
            yield (
                f"{where}.issuer",
                'is needed with kind = "oidc"',
                'the provider\'s address, e.g. "https://accounts.google.com"',
            )
        elif each.issuer and (not is_fit(each.issuer) or "?" in each.issuer):
            yield (
                f"{where}.issuer",
                f'"{without_credentials(each.issuer)}" is no address with https',
                'e.g. "https://login.example.org"',
            )
        elif each.kind == "github" and each.issuer.endswith("/"):
            yield f"{where}.issuer", "ends with a slash", f'"{each.issuer.rstrip("/")}"'
        if each.kind == "github" and not each.client_secret:
            yield (
                f"{where}.client_secret",
                'is needed with kind = "github"',
                'a reference, "env:NAME" or "file:/path"',
            )
        if each.assertions and each.kind != "oidc":
            yield f"{where}.assertions", 'are for kind = "oidc"', "leave it out"
        if each.assertions and any(
            before is not None and before.assertions and before.issuer == each.issuer
            for before in upstreams[: place - 1]
        ):
            yield (
                f"{where}.assertions",
                f'are taken from "{each.issuer}" by another table already',
                "one of them is enough",
            )
        if not each.allow:
            yield (
                f"{where}.allow",
                "names nobody, so nobody could sign in with it",
                'a list of { subject = "…", user = "alice" }',
            )
        yield from _of_people(each, where)


def _of_people(each: UpstreamConfig, where: str) -> Iterable[tuple[str, str, str]]:
    from auth.people import user_accounts

    known: set[str] = set()
    for place, entry in enumerate(each.allow, 1):
        key, subject = f"{where}.allow[{place}]", _word(entry.subject)
        if subject in known:
            yield f"{key}.subject", f'"{entry.subject}" is listed twice', "each of them once"
        known.add(subject)
        if isinstance(user_accounts.fit_name(entry.user), user_accounts.UnfitEntry):
            yield (
                f"{key}.user",
                f'"{entry.user}" cannot be a name here',
                "the name of an account, as `ostiary users` shows it",
            )
        if each.kind == "github" and not (_NUMBER.fullmatch(subject) or _LOGIN.fullmatch(subject)):
            yield (
                f"{key}.subject",
                f'"{entry.subject}" is nobody at GitHub',
                'the account\'s number, e.g. "583231", or "login:octocat"',
            )
        if each.kind == "oidc" and (
            "*" in subject or (subject.startswith("email:") and not _EMAIL.fullmatch(subject))
        ):
            yield (
                f"{key}.subject",
                f'"{entry.subject}" names nobody',
                'the `sub` there, or "email:ann@example.org"',
            )


def _word(subject: str) -> str:
    """Return an address or login in lower case, as they are compared; a `sub` stays as it is."""
    from auth.providers import provider_sign_in as upstream

    return upstream.folded(subject) if subject.startswith(upstream.MUTABLE) else subject


def providers(upstreams: Sequence[UpstreamConfig]) -> dict[str, Provider]:
    """Return the providers, ready to use. Raises `SecretUnreadable`."""
    return {each.name: _provider(each) for each in upstreams}


def _provider(each: UpstreamConfig) -> Provider:
    from auth.people import user_accounts
    from auth.providers.provider_requests import GITHUB
    from auth.providers.provider_sign_in import Provider

    names = ((_word(entry.subject), user_accounts.fit_name(entry.user)) for entry in each.allow)
    return Provider(
        name=each.name,
        kind=each.kind,
        label=each.label or ("GitHub" if each.kind == "github" else each.name),
        issuer=each.issuer or GITHUB,
        client_id=each.client_id,
        secret=read_secret(each.client_secret) if each.client_secret else None,
        allow={subject: name for subject, name in names if isinstance(name, str)},
        assertions=each.assertions,
    )
