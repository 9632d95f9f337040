"""The parameters that may be posted to the OAuth endpoints, checked once at the border.

A grant never sees the raw form. Unknown parameters are ignored; a known one that comes twice is refused (RFC 6749 §3.2), except
`resource`, which may (RFC 8707 §2). An empty parameter counts as absent (§3.1). The size of the whole body is the listener's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from auth.client_authentication.client_assertions import subject_of
from auth.client_authentication.dpop_proofs import DpopProof
from auth.clients.client_registry import BadCredentials, ClientCredentials, read_assertion, read_credentials
from auth.values.http_messages import WireRequest

# Characters per parameter; ours are all below 200. What is longer cannot name anything that we issued.
LENGTHS: Final = MappingProxyType(
    {
        "resource": 2_048,
        "token": 8_192,
        "scope": 1_024,
        "redirect_uri": 2_048,
        "client_id": 2_048,
        "client_assertion": 8_192,
        "assertion": 8_192,
        "state": 2_048,
    }
)
LENGTH: Final = 512
PARAMETERS: Final = 32

# Those of an authorization request, in the order in which one is written down.
AUTHORIZATION: Final = (
    "response_type",
    "client_id",
    "redirect_uri",
    "code_challenge",
    "code_challenge_method",
    "scope",
    "state",
    "prompt",
    "max_age",
    "response_mode",
    "request",
    "request_uri",
    "dpop_jkt",
)
_OTHERS: Final = (
    "grant_type client_secret client_assertion client_assertion_type device_code refresh_token code code_verifier"
    " assertion token resource"
)
KNOWN: Final = frozenset((*AUTHORIZATION, *_OTHERS.split()))

# Claimed by a person's machine, in any script; cleaned and cut where they are stored.
FREE_TEXT: Final = frozenset({"client_name", "hostname"})


class BadForm(ValueError):
    """The request is malformed; the text is for the client and repeats none of it."""


class CheckedForm(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one POST."""

    values: Mapping[str, str]
    resources: tuple[str, ...]
    credentials: ClientCredentials
    proof: DpopProof | None = None  # of a key (client_authentication/dpop_proofs.py)

    def __repr__(self) -> str:  # the values hold secrets
        return f"CheckedForm(of={self.credentials!r})"

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def need(self, name: str) -> str:
        value = self.values.get(name)
        if value is None:
            raise BadForm(f"{name} is missing")
        return value


class TokenForm(msgspec.Struct, frozen=True, kw_only=True):
    """A token request (RFC 6749 §4-6, RFC 8628 §3.4, RFC 8707 §2.2, RFC 7523 §2.1)."""

    grant_type: str
    credentials: ClientCredentials
    device_code: str | None = None
    refresh_token: str | None = None
    code: str | None = None
    code_verifier: str | None = None
    assertion: str | None = None
    redirect_uri: str | None = None
    scope: str = ""
    resources: tuple[str, ...] = ()

    def __repr__(self) -> str:  # the rest may be secret
        return (
            f"TokenForm(grant_type={self.grant_type!r}, scope={self.scope!r}, resources={self.resources!r})"
        )


def read(request: WireRequest) -> CheckedForm:
    """Read a form. Raise `BadForm` or, for what a client says of itself, `BadCredentials`."""
    if len(request.form) > PARAMETERS:
        raise BadForm("too many parameters")
    values: dict[str, str] = {}
    resources: list[str] = []
    for name, value in request.form:
        if name not in KNOWN and name not in FREE_TEXT:
            continue
        # RFC 6749 appendix A: everything that we look up is printable ASCII; a NUL or a surrogate would upset a store.
        if name not in FREE_TEXT and not (value.isascii() and value.isprintable()):
            raise BadForm(f"{name} has characters outside printable ASCII")
        if len(value) > LENGTHS.get(name, LENGTH):
            raise BadForm(f"{name} is too long")
        if name == "resource":
            resources += [value] if value else []
        elif name in values:
            raise BadForm(f"{name} is given more than once")
        else:
            values[name] = value
    if "" in values.values():
        values = {name: value for name, value in values.items() if value}
    if not values and any(name in KNOWN for name, _ in request.query):
        # RFC 6749 §2.3.1, §3.2: nothing of it is looked at in the address, which stands in logs.
        raise BadForm("the parameters belong in the body of the request, not in its address")
    client_id, secret = values.get("client_id"), values.get("client_secret")
    authorization = request.headers.get("authorization")
    if authorization is None:
        credentials = ClientCredentials(client_id=client_id, secret=secret)
    else:
        credentials = read_credentials(authorization, client_id, secret)
    if "client_assertion" in values or "client_assertion_type" in values:
        assertion = values.get("client_assertion")
        credentials = read_assertion(
            credentials, assertion, values.get("client_assertion_type"), assertion and subject_of(assertion)
        )
    if credentials.client_id is not None and len(credentials.client_id) > LENGTHS["client_id"]:
        raise BadCredentials("client_id is too long")
    return CheckedForm(values=MappingProxyType(values), resources=tuple(resources), credentials=credentials)


def token_form(form: CheckedForm) -> TokenForm:
    get = form.values.get
    return TokenForm(
        grant_type=get("grant_type") or form.need("grant_type"),
        credentials=form.credentials,
        device_code=get("device_code"),
        refresh_token=get("refresh_token"),
        code=get("code"),
        code_verifier=get("code_verifier"),
        assertion=get("assertion"),
        redirect_uri=get("redirect_uri"),
        scope=get("scope", ""),
        resources=form.resources,
    )
