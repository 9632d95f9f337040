"""Names that are being proved just now, in memory alone: what an authority is shown that comes to look. After a crash they are proved
anew, by the same order.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator
from contextlib import contextmanager

from server.acme.certificates import proof_context
from server.acme.troubles import TLS_ALPN


class Proofs:
    """Implements `server.http.issued.Challenges`, and is asked for tokens by whoever answers on port 80."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._tokens: dict[str, tuple[str, str]] = {}
        self._seen: set[str] = set()

    def __bool__(self) -> bool:
        """Whether TLS is to be listened to more closely."""
        return bool(self._contexts)

    def context_for(self, name: str) -> ssl.SSLContext | None:
        found = self._contexts.get(name)
        if found is not None:
            self._seen.add(name)
        return found

    def key_authorization(self, token: str) -> str | None:
        found = self._tokens.get(token)
        if found is None:
            return None
        self._seen.add(found[0])
        return found[1]

    def was_seen(self, name: str) -> bool:
        """Whether anybody came to look at the proof of this name, since it was shown last."""
        return name in self._seen

    @contextmanager
    def shown(self) -> Generator[None]:
        """Whatever is added inside is taken away at the end, however that comes."""
        self._seen.clear()
        try:
            yield
        finally:
            self._contexts.clear()
            self._tokens.clear()

    def add(self, way: str, name: str, token: str, key_authorization: str) -> None:
        if way == TLS_ALPN:
            self._contexts[name] = proof_context(name, key_authorization)
        else:
            self._tokens[token] = (name, key_authorization)
