"""Why there is no new certificate, in sentences for whoever runs the server: one for each thing that goes wrong, and what to do about it.

The authority's own words follow ours, bounded and cleaned. When it is tried again is certificate_keeper.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from server.lib.log.visible_text import clean

SAID_CHARACTERS: Final = 400

TLS_ALPN: Final = "tls-alpn-01"
HTTP: Final = "http-01"
# Where the authority comes to look, by what is proved there.
_PORTS: Final = MappingProxyType({TLS_ALPN: 443, HTTP: 80})


class CertificateTrouble(Exception):
    """`str(trouble)` is a sentence without a full stop. `kind` is the authority's word for it, or one of ours; `name` is the host name that
    it is about, if any; `wait_seconds` is how long the authority wants to be left alone."""

    def __init__(
        self, kind: str, words: str, *, hint: str = "", name: str = "", wait_seconds: float | None = None
    ) -> None:
        super().__init__(words)
        self.kind = kind
        self.hint = hint
        self.name = name
        self.wait_seconds = wait_seconds


class Sentence(NamedTuple):
    words: str
    hint: str


# `{name}`: the host name it is about. `{port}`: where the authority came to look.
_OF_A_NAME: Final[Mapping[str, Sentence]] = MappingProxyType(
    {
        "dns": Sentence(
            "{name} cannot be found in the DNS by the certificate authority",
            "{name} needs an A or AAAA record with the public address of this server; new records may take an hour to be seen",
        ),
        "connection": Sentence(
            "the certificate authority cannot reach {name} on port {port}",
            "port {port} of {name} must lead to this server: look at its DNS records (also AAAA), the firewall, and the router's port forwarding",
        ),
        "tls": Sentence(
            "what answers the certificate authority on port {port} of {name} does not speak TLS as it should",
            "does something else end TLS before this server, such as a proxy or a CDN? then use http_port = 80, or its certificates",
        ),
        "unauthorized": Sentence(
            "the certificate authority reached a server under {name} that is not this one",
            "all A and AAAA records of {name} must lead here, and nothing in between may end TLS",
        ),
        "incorrectResponse": Sentence(
            "the certificate authority reached a server under {name} that is not this one",
            "all A and AAAA records of {name} must lead here, and nothing in between may answer for it",
        ),
        "caa": Sentence(
            "a CAA record of {name} forbids this certificate authority",
            "add the authority to the CAA records of {name}, or choose another with `directory` in [acme]",
        ),
        "rejectedIdentifier": Sentence(
            "the certificate authority gives no certificates for {name}",
            "is it spelled right in `domain`, and a public name?",
        ),
        "unsupportedIdentifier": Sentence(
            "the certificate authority gives no certificates for names like {name}",
            "is it spelled right in `domain`, and a public name?",
        ),
    }
)
_OF_THE_REST: Final[Mapping[str, Sentence]] = MappingProxyType(
    {
        "rateLimited": Sentence(
            "the certificate authority has had too many requests for this name or from this account",
            "nothing helps but to wait; until then the certificate of before is served as long as it is valid",
        ),
        "externalAccountRequired": Sentence(
            "the certificate authority wants to know for which of its customers this is",
            "set eab_key_id and eab_key in [acme] to what it shows in your account there",
        ),
        "userActionRequired": Sentence(
            "the certificate authority wants something agreed to before it goes on",
            "look at what it says, and at its terms",
        ),
        "accountDoesNotExist": Sentence(
            "the certificate authority does not know this server's account any more",
            "a new account is made with the next attempt",
        ),
        "unauthorized": Sentence(
            "the certificate authority does not accept this server's account",
            "if it was closed, remove acme/account.json in the data directory, and a new one is made",
        ),
        "invalidContact": Sentence(
            "the certificate authority does not accept the contact address", "put `contact` in [acme] right"
        ),
        "unsupportedContact": Sentence(
            "the certificate authority does not accept the contact address", "put `contact` in [acme] right"
        ),
        "invalidProfile": Sentence(
            "the certificate authority has no such profile", "put `profile` in [acme] right, or leave it out"
        ),
        "serverInternal": Sentence(
            "the certificate authority has an error of its own", "it is tried again by itself"
        ),
        "badNonce": Sentence(
            "the certificate authority refused every number it gave out itself (badNonce)",
            "it is tried again by itself",
        ),
        "alreadyRevoked": Sentence("that certificate was revoked already", ""),
    }
)


def trouble(
    kind: str,
    said: str,
    *,
    name: str = "",
    way: str = TLS_ALPN,
    wait_seconds: float | None = None,
) -> CertificateTrouble:
    """What the authority's `kind` means for us. `name`: the host name that it is about, if any; `way`: how it was to be proved."""
    sentence = (_OF_A_NAME.get(kind) if name else None) or _OF_THE_REST.get(kind)
    if sentence is None:
        about = f" about {name}" if name else ""
        sentence = Sentence(f"the certificate authority said no{about} ({clean(kind)[:60]})", "")
    words = sentence.words.format(name=name, port=_PORTS[way])
    hint = sentence.hint.format(name=name, port=_PORTS[way])
    quoted = shortened(said)
    return CertificateTrouble(
        kind, f"{words}: {quoted}" if quoted else words, hint=hint, name=name, wait_seconds=wait_seconds
    )


def shortened(said: str) -> str:
    """Words of the authority, fit for a log and a terminal."""
    text = clean(said).strip()
    return text if len(text) <= SAID_CHARACTERS else text[: SAID_CHARACTERS - 1] + "…"
