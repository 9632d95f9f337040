"""The Authlib seam: Authlib dispatches the token endpoint and runs client authentication; everything else is ours.

The only module of this package that imports authlib. Its defaults are overridden one by one, each named below with the trap it
closes; tests/auth/test_authlib_traps.py states the stock behaviour beside ours, so that an upgrade that moves shows.

- T1, T2, T11, T15, T16: no stock grant, endpoint or token generator is registered. A grant here is a few lines that hand an
  authenticated client to our own job, which consumes before it issues and returns what to sign after the commit.
- T3: the device endpoint is ours, and asks this module only for the client; the client's own grant types decide.
- T9: registration is ours (clients/register.py, clients/registration_form.py), and so are revocation and introspection (T16).
- T10, T17: Authlib sees a payload of parameters that forms.py has already checked, and of the body alone.
- T13: the request's URL is a constant, so that no socket or proxy can make it "insecure".
- T14: its debug loggers, which print tokens, are switched off.
- The 401 of a failed client names Basic only where Basic was used: errors are turned into `Refusal` values here.
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
from authlib.oauth2.rfc6749.errors import UnauthorizedClientError
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from msgspec.structs import replace

from auth import audit
from auth.clients import registry as clients
from auth.clients.registry import AUTH_METHODS, PRIVATE_KEY, SECRET_METHODS, Credentials
from auth.db import Db
from auth.errors import Refusal
from auth.grants import GRANTS, GrantJob, offered
from auth.grants.exchange import Exchange, Issue, record
from auth.model import Client, Millis
from auth.requester import Requester
from auth.tokens import dpop

# T13: never looked at, but Authlib refuses to build a request from a plain http URL.
_URL: Final = "https://token.invalid/"

_TEXT: Final = {
    "invalid_client": "unknown client, or its credentials do not match",
    "unauthorized_client": "this client may not use this grant type",
    "unsupported_grant_type": "this server does not know the grant type",
}


def silence() -> None:
    """T14: `log.debug("Issue token %r")`. Idempotent; a later configuration of the root logger does not undo it."""
    for name in ("authlib", "authlib.oauth2", "authlib.oauth2.rfc6749", "authlib.oauth2.rfc8628"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def exchange_token(db: Db, exchange: Exchange) -> Issue | Refusal:
    """A job: the token endpoint. Whatever it returns, with its audit rows, may be committed."""
    server = _Server(db, exchange.requester, exchange.now)
    for grant_type in offered(exchange.policy):
        server.register_grant(_GRANT_CLASSES[grant_type])
    request = _Request(exchange.form.grant_type, exchange.form.credentials, exchange)
    server.create_token_response(request)
    assert (
        request.outcome is not None
    )  # every way through Authlib ends in one of our two overrides that set it
    return request.outcome


def authenticate(
    db: Db, credentials: Credentials, *, endpoint: str, requester: Requester, now: Millis
) -> Client | Refusal:
    """For the other endpoints, inside their jobs: who asks, by the same rules as at the token endpoint."""
    server = _Server(db, requester, now)
    request = _Request(endpoint, credentials)
    try:
        return _model(server.authenticate_client(request, AUTH_METHODS, endpoint))
    except OAuth2Error as error:
        return server.refusal(request, error)


class _Request(OAuth2Request):
    def __init__(self, grant_type: str, credentials: Credentials, exchange: Exchange | None = None) -> None:
        super().__init__("POST", _URL)
        self.payload = BasicOAuth2Payload({"grant_type": grant_type})
        self.credentials = credentials
        self.problem = credentials.problem  # with the client's assertion
        self.exchange = exchange
        # Authlib's own response (status, body, headers) is not used: what to sign is no response yet.
        self.outcome: Issue | Refusal | None = None


class _ClientView(ClientMixin):
    """What Authlib asks of a client."""

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


def _authenticator(method: str, db: Db) -> Callable[[Any, Any], _ClientView | None]:
    """One of Authlib's authentication methods, on credentials that forms.py has read and clients/assertion.py has judged."""

    def attempt(query_client: Callable[[str], _ClientView | None], request: _Request) -> _ClientView | None:
        shown = request.credentials
        if _method_used(shown) != method or shown.client_id is None:
            return None
        client = query_client(shown.client_id)
        if client is None or not clients.proves(client.model, shown):
            return None
        proof = shown.proof
        if proof is not None and not clients.use_up(db, proof.client_id, proof.jti_hash, proof.expires_at):
            request.problem = "it was used before"
            return None
        return client

    return attempt


def _method_used(shown: Credentials) -> str:
    if shown.assertion is not None:
        return PRIVATE_KEY
    if shown.secret is None:
        return "none"
    return "client_secret_basic" if shown.basic else "client_secret_post"


class _Server(AuthorizationServer):
    """One per request: Authlib's server object keeps no state of its own, and ours is the transaction."""

    def __init__(self, db: Db, requester: Requester, now: Millis) -> None:
        super().__init__()
        self.db, self._requester, self._now = db, requester, now
        for method in AUTH_METHODS:
            self.register_client_auth_method(method, _authenticator(method, db))

    def query_client(self, client_id: str) -> Any:
        found = clients.lookup(self.db, client_id)
        return _ClientView(found) if found is not None and found.enabled else None

    def create_oauth2_request(self, request: Any) -> Any:
        return request

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Nobody listens; what happened is in the audit trail."""

    def handle_response(self, status: Any, body: Any, headers: Any) -> None:
        """The outcome is on the request."""

    def handle_error_response(self, request: Any, error: OAuth2Error) -> None:
        request.outcome = self.refusal(request, error)

    def refusal(self, request: _Request, error: OAuth2Error) -> Refusal:
        """Authlib's errors in our words; their descriptions and headers are dropped."""
        code = str(error.error)
        shown = request.credentials.client_id or ""
        known = clients.lookup(self.db, shown) is not None
        audit.record(
            self.db,
            at=self._now,
            event="client.refused",
            client_id=shown if known else None,  # an unknown one is a stranger's text
            ip=self._requester.ip,
            user_agent=self._requester.user_agent,
            outcome="refused",
            reason=f"{code}: {request.problem}" if request.problem else code,
        )
        text = f"client_assertion: {request.problem}" if request.problem else _TEXT[code]
        return Refusal(error=code, description=text)


def _grant_class(grant_type: str, job: GrantJob) -> type[BaseGrant]:
    class Grant(BaseGrant, TokenEndpointMixin):
        GRANT_TYPE = grant_type
        TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS  # T11: stock is Basic alone

        def validate_token_request(self) -> None:
            client = self.authenticate_token_endpoint_client()
            if not client.check_grant_type(grant_type):
                raise UnauthorizedClientError()
            self.request.client = client

        def create_token_response(self) -> Any:
            request, server = cast("_Request", self.request), cast("_Server", self.server)
            assert request.exchange is not None  # only exchange_token comes here
            request.outcome = _with_key(server.db, job, _model(request.client), request.exchange)
            return 200, "", []

    return Grant


def _with_key(db: Db, job: GrantJob, client: Client, exchange: Exchange) -> Issue | Refusal:
    """RFC 9449 §5: whoever proves a key gets a token that is bound to it, by every grant type."""
    proof = exchange.proof
    if proof is None:
        return job(db, client, exchange)
    if not dpop.use_up(db, proof):
        record(db, client, exchange, "dpop.refused", refused="proof used again")
        return dpop.refusal("was used before")
    outcome = job(db, client, exchange)
    return replace(outcome, jkt=proof.jkt) if isinstance(outcome, Issue) else outcome


_GRANT_CLASSES: Final = MappingProxyType(
    {grant_type: _grant_class(grant_type, job) for grant_type, job in GRANTS.items()}
)

silence()  # at import, because a request must never come before it
