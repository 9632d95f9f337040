"""The token endpoint: a token request, in the order in which it can fail; and who asks, for the other endpoints.

Authlib finds the grant type of a request, runs the methods of client authentication against it, and names what is wrong in the
codes of RFC 6749 §5.2. Tokens, responses and the words of errors are ours: what to sign is no response yet, for nothing may be
signed before the job is committed.

The only module that imports Authlib. Its defaults are overridden one by one, each named below with the trap it closes;
tests/auth/endpoints/test_authlib_traps.py states the stock behaviour beside ours, so that an upgrade that moves shows.

- T1, T2, T11, T15, T16: no stock grant, endpoint or token generator is registered. A grant to an authenticated
  client is a job of ours, which consumes before it issues and returns what to sign after the commit.
- T3: the device endpoint is ours, and asks this module only for the client; the client's own grant types decide.
- T9: registration is ours (endpoints/client_registration.py, clients/registration_request.py), and so are revocation and introspection (T16).
- T10, T17: Authlib sees a payload of parameters that grants/request_parameters.py has already checked, and of the body alone.
- T13: the request's URL is a constant, so that no socket or proxy can make it "insecure".
- T14: its debug loggers, which print tokens, are switched off.
- The 401 of a failed client names Basic only where Basic was used: errors are turned into `OAuthRefusal` values here.
"""

# Authlib is typed in part only. What crosses this seam is typed by the two functions that others call.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, cast

from authlib.oauth2 import OAuth2Request
from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    BaseGrant,
    ClientMixin,
    OAuth2Error,
    TokenEndpointMixin,
)
from authlib.oauth2.rfc6749.errors import UnauthorizedClientError, UnsupportedGrantTypeError
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from msgspec.structs import replace

from auth.audit import audit_trail
from auth.client_authentication import dpop_proofs
from auth.clients import client_registry as clients
from auth.clients.client_registry import AUTH_METHODS, PRIVATE_KEY, SECRET_METHODS, ClientCredentials
from auth.grant_types.grant_type_table import GRANTS, offered
from auth.grant_types.refresh_token_grant import look_ahead
from auth.grants.token_request import GrantRequest, Issue, record
from auth.values.database import Db
from auth.values.identity_model import REFRESH_TOKEN, Client, Millis
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester

# T13: never looked at, but Authlib refuses to build a request from a plain http URL.
_URL: Final = "https://token.invalid/"

_TEXT: Final = {
    "invalid_client": "unknown client, or its credentials do not match",
    "unauthorized_client": "this client may not use this grant type",
    "unsupported_grant_type": "this server does not know the grant type",
}


def silence() -> None:
    """Switch off Authlib's loggers, one of which prints tokens (T14); a later configuration of the root logger does not undo that."""
    for name in ("authlib", "authlib.oauth2", "authlib.oauth2.rfc6749", "authlib.oauth2.rfc8628"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def exchange_token(db: Db, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """Answer a token request. A job: whatever it returns, with its audit rows, may be committed."""
    form, proof = exchange.form, exchange.proof
    request = _Request(db, form.grant_type, form.credentials)
    try:
        # 1. Which grant type is this? Only those that the settings leave in force are known.
        if form.grant_type not in offered(exchange.policy):
            raise UnsupportedGrantTypeError(form.grant_type)
        grant = _SERVER.get_token_grant(request)
        if form.grant_type == REFRESH_TOKEN:
            look_ahead(db, form.refresh_token)
        # 2. Who asks, by the one method that fits what was shown?
        shown: Any = grant.authenticate_token_endpoint_client()
        # 3. Is the client registered for this grant type?
        if not shown.check_grant_type(form.grant_type):
            raise UnauthorizedClientError()
    except OAuth2Error as error:
        return _refuse(request, error, exchange.requester, exchange.now)
    client = _model(shown)
    # 4. Which key are the tokens for? A proof of it counts once, whatever comes of the request (RFC 9449 §5).
    if proof is not None and not dpop_proofs.use_up(db, proof):
        record(db, client, exchange, "dpop.refused", refused="proof used again")
        return dpop_proofs.refusal("was used before")
    # 5. May it be? The grant type's own page decides, which is pure; writes, by one conditional UPDATE; and records.
    outcome = GRANTS[form.grant_type](db, client, exchange)
    # 6. What may be signed once all this is committed, bound to the key.
    return outcome if proof is None or isinstance(outcome, OAuthRefusal) else replace(outcome, jkt=proof.jkt)


def authenticate(
    db: Db, credentials: ClientCredentials, *, endpoint: str, requester: Requester, now: Millis
) -> Client | OAuthRefusal:
    """Return who asks at another endpoint, by the rules of the token endpoint. Part of a job."""
    request = _Request(db, endpoint, credentials)
    try:
        return _model(_SERVER.authenticate_client(request, AUTH_METHODS, endpoint))
    except OAuth2Error as error:
        return _refuse(request, error, requester, now)


def _refuse(request: _Request, error: OAuth2Error, requester: Requester, now: Millis) -> OAuthRefusal:
    """Put an error of Authlib into our words, without its description and headers, and record it."""
    code, problem = str(error.error), request.problem
    named = request.credentials.client_id or ""
    known = clients.lookup(request.db, named) is not None
    audit_trail.record(
        request.db,
        now,
        "client.refused",
        client_id=named if known else None,  # an unknown one is a stranger's text
        who=requester,
        refused=f"{code}: {problem}" if problem else code,
    )
    return OAuthRefusal(error=code, description=f"client_assertion: {problem}" if problem else _TEXT[code])


_BLANK: Final = MappingProxyType(vars(OAuth2Request("POST", _URL)))


class _Request(OAuth2Request):
    def __init__(self, db: Db, grant_type: str, credentials: ClientCredentials) -> None:
        # Authlib's own beginnings, without its looking at the process's environment for each request.
        vars(self).update(_BLANK)
        self.headers = {}
        self.payload = BasicOAuth2Payload({"grant_type": grant_type})
        self.db = db
        self.credentials = credentials
        self.problem = credentials.problem  # with the client's assertion


class _ClientView(ClientMixin):
    """A client as Authlib asks about it."""

    def __init__(self, model: Client) -> None:
        self.model = model

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        # The same at every endpoint (T3, T11). A client with a secret may show it in either place.
        del endpoint
        registered = self.model.auth_method
        return method == registered or (method in SECRET_METHODS and registered in SECRET_METHODS)

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.model.grant_types


def _model(client: Any) -> Client:
    return cast("_ClientView", client).model


def _authenticator(method: str) -> Callable[[object, _Request], _ClientView | None]:
    """Make one of Authlib's authentication methods, on credentials that have been read and judged.

    grants/request_parameters.py has read them, and client_authentication/client_assertions.py has judged the assertion.
    """

    def attempt(_: object, request: _Request) -> _ClientView | None:
        shown = request.credentials
        if _method_used(shown) != method or shown.client_id is None:
            return None
        client = clients.lookup(request.db, shown.client_id)
        if client is None or not client.enabled or not clients.proves(client, shown):
            return None
        proof = shown.proof
        if proof is not None and not clients.use_up(
            request.db, proof.client_id, proof.jti_hash, proof.expires_at
        ):
            request.problem = "it was used before"
            return None
        return _ClientView(client)

    return attempt


def _method_used(shown: ClientCredentials) -> str:
    if shown.assertion is not None:
        return PRIVATE_KEY
    if shown.secret is None:
        return "none"
    return "client_secret_basic" if shown.basic else "client_secret_post"


def _grant_class(grant_type: str) -> type[BaseGrant]:
    class Grant(BaseGrant, TokenEndpointMixin):
        GRANT_TYPE = grant_type
        TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS  # T11: stock is Basic alone

    return Grant


class _Server(AuthorizationServer):
    """Two tables: the grant types, and the methods by which a client shows who it is. Nothing is kept of a request."""

    def __init__(self) -> None:
        super().__init__()
        for method in AUTH_METHODS:
            self.register_client_auth_method(method, _authenticator(method))
        for grant_type in GRANTS:
            self.register_grant(_grant_class(grant_type))

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Tell nobody: what happened is in the audit trail."""


_SERVER: Final = _Server()

silence()  # at import, because a request must never come before it
