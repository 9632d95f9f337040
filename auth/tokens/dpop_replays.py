"""Proofs that resources have seen, where several processes have one database: each counts once among all of them (RFC 9449 §11.1).

What this process has seen itself is auth/client_authentication/dpop_proofs.py's `ProofWindow`. What others have seen is asked of the store, by putting the proof there: so a
request with a proof waits for a commit, as at the token endpoint. Who can wait for nothing is answered None first (access_token_verifier.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from auth.client_authentication.dpop_proofs import DpopProof
from auth.values.identity_model import Millis

# As many requests may be between their two looks, with a text of 8 KiB at most. One that went away leaves its own here, until it is too old.
BETWEEN: Final = 2_000

# False if another process has seen it before.
ClaimProof: TypeAlias = Callable[[DpopProof], Awaitable[bool]]


class ProofClaims:
    def __init__(self, claim: ClaimProof) -> None:
        self._claim = claim
        self._waiting: dict[str, DpopProof] = {}  # by its text: nobody has asked the store yet
        self._answered: dict[str, tuple[bool, Millis]] = {}  # and when it is too old

    def is_waiting(self, text: str) -> bool:
        return text in self._waiting

    def wait(self, text: str, proof: DpopProof, now: Millis) -> bool:
        """Used here for the first time: the store is to be asked. False if too many wait."""
        if len(self._waiting) + len(self._answered) >= BETWEEN:
            self._waiting = {each: kept for each, kept in self._waiting.items() if kept.expires_at > now}
            self._answered = {each: kept for each, kept in self._answered.items() if kept[1] > now}
            if len(self._waiting) + len(self._answered) >= BETWEEN:
                return False
        self._waiting[text] = proof
        return True

    async def ask(self, text: str) -> bool:
        """False if there is nothing to ask: whoever came with the same proof at the same moment has done so. Raises what the store raises;
        the proof is used up then all the same."""
        proof = self._waiting.pop(text, None)
        if proof is None:
            return False
        self._answered[text] = (await self._claim(proof), proof.expires_at)
        return True

    def taken(self, text: str) -> bool | None:
        """The store's answer, which is good for one request. None: it has none."""
        found = self._answered.pop(text, None)
        return None if found is None else found[0]
