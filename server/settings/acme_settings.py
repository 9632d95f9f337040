"""`[acme]`: from which authority certificates come, and as whom they are asked for. The shape, and what is wrong with it together with
`domain`, `accept_terms` and `http_port`. Getting them is server/certificates's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from server.settings.setting_shapes import Config

LETS_ENCRYPT: Final = "https://acme-v02.api.letsencrypt.org/directory"

# As a certificate has it and callers send it: letters of other alphabets as xn--….
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"({_LABEL}\.)+[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?")
_NAME_CHARACTERS: Final = 253

Fault = tuple[str, str, str]  # the setting, what is wrong, what to write instead


class AcmeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    directory: Annotated[
        str, Meta(max_length=2048, description="the https address of a certificate authority's directory")
    ] = LETS_ENCRYPT
    contact: Annotated[
        tuple[Annotated[str, Meta(max_length=320, pattern="^mailto:[^\\s?,]+@[^\\s?,]+$")], ...],
        Meta(max_length=8, description='a list of addresses, e.g. ["mailto:ann@example.org"]'),
    ] = ()
    profile: Annotated[
        str,
        Meta(pattern="^[A-Za-z0-9_.-]{0,64}$", description='the name of a profile there, e.g. "shortlived"'),
    ] = ""
    ca_file: Annotated[
        str, Meta(description="the path of the PEM certificates by which the authority itself is known")
    ] = ""
    eab_key_id: Annotated[
        str, Meta(max_length=512, description="the id of the key that the authority gave you")
    ] = ""
    # Without a pattern: what is wrong is shown, and somebody may have written the key itself.
    eab_key: Annotated[str, Meta(description='a reference to that key, "env:NAME" or "file:/path"')] = ""


def acme_faults(config: Config, acme: AcmeConfig) -> Iterable[Fault]:
    if config.domain:
        yield from _of_names(config)
        if not config.accept_terms:
            terms = (
                "https://letsencrypt.org/repository/"
                if acme.directory == LETS_ENCRYPT
                else "the authority's own"
            )
            yield (
                "accept_terms",
                f"is needed with domain: a certificate authority has terms ({terms})",
                "true, once you agree to them",
            )
        if config.tls_certificate or config.tls_key:
            yield "domain", "gets a certificate by itself, and tls_certificate names one", "one of the two"
    if config.http_port >= 0 and not config.domain and not config.tls_certificate:
        yield (
            "http_port",
            "sends callers on to https, which is not served",
            "it with domain or tls_certificate",
        )
    parts = urlsplit(acme.directory)
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or parts.fragment:
        yield "acme.directory", f'"{acme.directory}" is no https address', f'e.g. "{LETS_ENCRYPT}"'
    if bool(acme.eab_key_id) != bool(acme.eab_key):
        yield "acme.eab_key", "and eab_key_id belong together", "both, or neither"
    if acme.eab_key and not acme.eab_key.startswith(("env:", "file:")):
        yield "acme.eab_key", "is no reference", '"env:NAME" or "file:/path"'


def _of_names(config: Config) -> Iterable[Fault]:
    seen = set[str]()
    for name in config.domain:
        if name in seen:
            yield "domain", f'"{name}" is there twice', "each name once"
        seen.add(name)
        if name.startswith("*."):
            yield (
                "domain",
                f'"{name}" cannot be proved by the server that it leads to',
                "each name by itself, or a certificate from elsewhere with tls_certificate",
            )
        elif len(name) > _NAME_CHARACTERS or not _NAME.fullmatch(name):
            yield (
                "domain",
                f'"{name}" is not a name that a certificate could be for',
                'a host name in lower case, e.g. "agent.example.org" (of other letters as xn--…)',
            )
    if config.issuer and (host := urlsplit(config.issuer).hostname) not in seen:
        yield (
            "issuer",
            f'is at "{host}", which is none of the names in domain',
            f'"https://{config.domain[0]}", or nothing: that is what it is without',
        )
