"""A whole login, by code or browser: discover where, settle our client identity, ask, wait, store.

The caller's `Screen` decides what is shown; the steps are in discovery.py, registration.py, device_login.py and browser_login.py.
Used by `ostiary login`, `ostiary upstream login` and the bridge.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from shlex import quote
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
import trio

from server import __version__
from server.client import browser_login, loopback
from server.client.access_token import wall_clock
from server.client.client_errors import ClientError, ClientUnknown, LoginError, LoginExpired
from server.client.device_login import (
    ask_for_code,
    login_from,
    remember,
    wait_for_tokens,
    withdraw,
)
from server.client.discovery import Place, discover
from server.client.http_exchange import peek
from server.client.login_ways import Way, choose
from server.client.registration import KnownIdentity, introduce, recall
from server.client.token_file import StoredCode, StoredLogin, TokenFile
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client import proof_key
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.device_authorization import DeviceCode
from server.lib.oauth_client.proof_key import ProofKey
from server.lib.oauth_client.token_requests import Tokens

# Characters of a name that the person who approves will read; the server cuts it as well.
MAX_NAME: Final = 80
# Time to find a password and a second factor, and no more: the answer is waited for on an open port.
BROWSER_SECONDS: Final = 600.0
# A code with less time left is not worth showing to anybody.
ENOUGH_MILLIS: Final = 60_000
UNANSWERED: Final = "That is not the address at which it ends: that one has a code in it, or an error"


class Screen(Protocol):
    """The view that a person has of a login. Its two contexts, `code` and `link`, last as long as the wait does."""

    def code(self, code: DeviceCode) -> AbstractAsyncContextManager[None]: ...

    def link(
        self, link: str, seconds: float, paste: Callable[[str], str]
    ) -> AbstractAsyncContextManager[None]:
        """Show the link to open. `paste` takes a redirect address that somebody copied, and says what became of it."""
        ...

    def trouble(self, error: ClientError) -> None: ...


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a login, such as its way, scope and client, as somebody asked for them on the command line."""

    way: Way | None = None
    scope: str | None = None
    identity: ClientIdentity | None = None
    port: int = 0  # of the redirect address, where a client was registered with one
    name: str = f"ostiary {__version__}"
    key: ProofKey | None = None  # that the tokens are to be bound to
    # A code that nobody has approved is used again the next time, and not replaced by another while it is good.
    keeps_code: bool = False


async def sign_in(
    client: HttpClient, file: TokenFile, url: str, *, screen: Screen, wish: Wish | None = None
) -> StoredLogin:
    """Log in to the server at `url` and store the login. Raise `ClientError`s; cancelling leaves the login before in place."""
    login = await obtain(client, file, url, screen=screen, wish=wish)
    await remember(client, file, login)
    return login


async def obtain(
    client: HttpClient, file: TokenFile, url: str, *, screen: Screen, wish: Wish | None = None
) -> StoredLogin:
    """Log in to the server at `url`, and return the login without storing it.

    `file` holds only which client we are at which server and, if `wish.keeps_code`, the code that waits for approval.
    """
    wished = wish or Wish()
    place = await discover(client, url)
    if wished.key is not None and proof_key.ALGORITHM not in place.server.proof_algorithms:
        raise LoginError(
            f"{place.server.issuer} does not bind its tokens to a key",
            hint="leave out --dpop: the login is then good for whoever holds its tokens",
        )
    way = choose(place.server, url, asked=wished.way)
    scope = place.scope if wished.scope is None else " ".join(wished.scope.split())
    known = await recall(file, place, way, given=wished.identity, now=wall_clock())
    go = _by_code if way == "device" else _by_browser
    try:
        tokens, identity = await go(client, file, place, screen, wished, known, scope)
    except ClientUnknown:
        if known is None or not known.registered or place.server.registration_endpoint is None:
            raise
        # Registrations are thrown away by servers that do not see them used. Once more, as somebody new.
        await trio.to_thread.run_sync(file.drop_registrations, place.server.issuer, known.identity.client_id)
        tokens, identity = await go(client, file, place, screen, wished, None, scope)
    return login_from(place, tokens, asked_scope=scope, now=wall_clock(), identity=identity, key=wished.key)


async def _by_code(
    client: HttpClient,
    file: TokenFile,
    place: Place,
    screen: Screen,
    wish: Wish,
    known: KnownIdentity | None,
    scope: str,
) -> tuple[Tokens, ClientIdentity]:
    identity = (
        known.identity
        if known is not None
        else await introduce(client, file, place, "device", redirect_uri=None, scope=scope)
    )
    names: Mapping[str, str] = {
        "client_name": wish.name[:MAX_NAME],
        "hostname": socket.gethostname()[:MAX_NAME],
    }

    async def ask() -> DeviceCode:
        return await ask_for_code(client, place, scope=scope, names=names, now=wall_clock, identity=identity)

    code = await (_kept(file, place, identity, scope, ask) if wish.keeps_code else ask())
    try:
        async with screen.code(code):
            try:
                tokens = await wait_for_tokens(
                    client,
                    place,
                    code,
                    now=wall_clock,
                    trouble=screen.trouble,
                    identity=identity,
                    key=wish.key,
                )
            except trio.Cancelled:
                if not wish.keeps_code:
                    await withdraw(client, place, code, identity=identity)
                raise
    except LoginError:
        # Decided, or over. Whoever is cancelled, or killed, leaves it to the next.
        await trio.to_thread.run_sync(file.drop_code, code)
        raise
    await trio.to_thread.run_sync(file.drop_code, code)
    return tokens, identity


async def _kept(
    file: TokenFile,
    place: Place,
    identity: ClientIdentity,
    scope: str,
    ask: Callable[[], Awaitable[DeviceCode]],
) -> DeviceCode:
    """Return the code of an earlier process with the same request, if there is still time to approve it; else request a new one.

    The new one is stored for later processes.
    """
    kept = await trio.to_thread.run_sync(file.code, place.url)
    now = wall_clock()
    issuer, client_id = place.server.issuer, identity.client_id
    wanted = (issuer, client_id, scope)
    good = kept is not None and kept.expires_at > now + ENOUGH_MILLIS
    if kept is not None and good and (kept.issuer, kept.client_id, kept.scope) == wanted:
        return kept
    made = msgspec.structs.asdict(await ask())
    code = StoredCode(**made, issuer=issuer, client_id=client_id, scope=scope)
    await trio.to_thread.run_sync(partial(file.put_code, place.url, code, now=now))
    return code


async def _by_browser(
    client: HttpClient,
    file: TokenFile,
    place: Place,
    screen: Screen,
    wish: Wish,
    known: KnownIdentity | None,
    scope: str,
) -> tuple[Tokens, ClientIdentity]:
    listener, known = await _listen(wish, known)
    async with loopback.listening(listener) as callback:
        uri = callback.redirect_uri
        identity = (
            known.identity
            if known is not None
            else await introduce(client, file, place, "browser", redirect_uri=uri, scope=scope)
        )
        if known is not None and known.registered:
            await _check_known(client, place, identity, uri, scope)
        attempt = browser_login.begin(place, identity, redirect_uri=uri, scope=scope, key=wish.key)
        callback.expect(
            lambda query: browser_login.read_answer(query, attempt, place, identity), host_of(place.url)
        )

        def paste(text: str) -> str:
            query = browser_login.query_of(text)
            if not browser_login.is_answer(query):  # the link that was opened has our state in it, too
                return UNANSWERED
            return callback.take_pasted(query)

        async with screen.link(attempt.link, BROWSER_SECONDS, paste):
            with trio.move_on_after(BROWSER_SECONDS):
                code = await callback.answer()
                with callback.redeeming(place.title):
                    tokens = await browser_login.redeem(
                        client, place, attempt, code, identity, key=wish.key, now=wall_clock()
                    )
                return tokens, identity
    raise LoginExpired(
        "no answer came from the browser in time", hint=f"ostiary login {quote(place.url)} --browser"
    )


async def _listen(
    wish: Wish, known: KnownIdentity | None
) -> tuple[trio.SocketListener, KnownIdentity | None]:
    """Listen on the port that the person named, else on that of the registered redirect address, else on any free one.

    Return the listener, and `known`, or None if the port of its redirect address is taken: that registration is of no use now.
    Raise `LoginError` if the port that the person named is taken, or no port can be had.
    """
    bound = known.redirect_uri if known is not None else None
    port = wish.port or (urlsplit(bound).port or 0 if bound else 0)
    try:
        return await loopback.listen(port), known
    except OSError as error:
        if wish.port or not port:
            raise LoginError(
                f"port {port} of this machine cannot be listened on: {error.strerror}",
                hint="stop what listens there, or name the port of another redirect address: --port; without it, a free one is taken",
            ) from None
    return await loopback.listen(), None


async def _check_known(
    client: HttpClient, place: Place, identity: ClientIdentity, redirect_uri: str, scope: str
) -> None:
    """Ask the authorization endpoint whether it knows the client, without a browser. Raise `ClientUnknown` if not.

    From the browser, a login with an unknown client id never comes back.
    """
    probe = browser_login.begin(place, identity, redirect_uri=redirect_uri, scope=scope)
    if (await peek(client, "GET", probe.link, headers={"Accept": "text/html"})).status in (400, 401):
        raise ClientUnknown(f"{place.server.issuer} does not know the client {identity.client_id} any more")
