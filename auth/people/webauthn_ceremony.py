"""What a browser and an authenticator say to each other for a passkey, and what of it we believe (WebAuthn Level 3 §7.1, §7.2).

Pure: questions are put together, answers are taken apart and checked by python-fido2. Single use of a question, attempts,
accounts and rows are in passkeys.py. A question needs no row: its challenge is a MAC over who was asked what until when,
so that looking at a sign-in page writes nothing, and an answer that comes from another browser fits no challenge of ours.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from auth.jose.base64url import pack
from auth.values.identity_model import Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import SECOND

LIFETIME: Final[Millis] = 120 * SECOND
NONCE_BYTES: Final = 16
ANSWER_CHARACTERS: Final = 16 * 1024  # a credential with an attestation that nobody asked for has some 6 KiB
CREDENTIAL_ID_BYTES: Final = 1_023  # WebAuthn §4
PUBLIC_KEY_BYTES: Final = 1_024  # RSA of 4096 bits has half of it
# ES256, Ed25519, RS256 as COSE names them: every authenticator that exists has one of the three.
ALGORITHMS: Final = (-7, -8, -257)

_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*")
_SENTENCE: Final = re.compile(r"[A-Z][A-Za-z ,]{8,80}\.?")
_TICKET: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{22})")

Purpose = Literal["register", "sign_in", "confirm"]


class RelyingParty(msgspec.Struct, frozen=True, kw_only=True):
    """Us, as an authenticator knows us: both have to fit exactly."""

    rp_id: str
    origin: str


class NoPasskeys(msgspec.Struct, frozen=True):
    """Why passkeys cannot be used at the address that somebody came by, and what to do."""

    sentence: str
    elsewhere: str = ""  # the origin at which they can


def party(site: Site, origin: str) -> RelyingParty | NoPasskeys:
    """Passkeys belong to a name: the issuer's, or `localhost`. An address in digits can have none."""
    here = urlsplit(origin)
    host = here.hostname or ""
    if site.loopback:
        if host == "localhost":
            return RelyingParty(rp_id=host, origin=origin)
        port = f":{here.port}" if here.port else ""
        there = f"{here.scheme}://localhost{port}"
        return NoPasskeys(f"Passkeys do not work at this address, but at {there} they do.", there)
    if _is_number(urlsplit(site.issuer).hostname or ""):
        return NoPasskeys("Passkeys need a name with https, and this server has only an address in digits.")
    if origin != site.issuer or here.scheme != "https":
        return NoPasskeys(f"Passkeys work at {site.issuer} only.", site.issuer)
    return RelyingParty(rp_id=host, origin=origin)


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- the question


@dataclass(frozen=True, kw_only=True, slots=True)
class PasskeyChallenge:
    """One challenge, and the ticket by which it can be made again when the answer comes."""

    ticket: str
    challenge: bytes = field(repr=False)
    expires_at: Millis


def ask(
    key: bytes, *, cookie: str, purpose: Purpose, user_id: str | None, entropy: bytes, now: Millis
) -> PasskeyChallenge:
    """`entropy` is `NONCE_BYTES` from the system's generator. `user_id` is None where anybody may answer."""
    if len(entropy) != NONCE_BYTES:
        raise ValueError(f"a challenge needs {NONCE_BYTES} random bytes")
    ticket = f"{now + LIFETIME}.{pack(entropy)}"
    challenge = _challenge(key, cookie, purpose, user_id, ticket)
    return PasskeyChallenge(ticket=ticket, challenge=challenge, expires_at=now + LIFETIME)


def asked(
    key: bytes, ticket: str, *, cookie: str, purpose: Purpose, user_id: str | None, now: Millis
) -> PasskeyChallenge | None:
    """The question that the ticket stands for; None if its time is over, or it cannot be one of ours."""
    match = _TICKET.fullmatch(ticket)
    expires_at = int(match[1]) if match else 0
    if not now < expires_at <= now + LIFETIME:
        return None
    challenge = _challenge(key, cookie, purpose, user_id, ticket)
    return PasskeyChallenge(ticket=ticket, challenge=challenge, expires_at=expires_at)


def _challenge(key: bytes, cookie: str, purpose: Purpose, user_id: str | None, ticket: str) -> bytes:
    said = "\n".join((cookie, purpose, user_id or "", ticket))  # none of them can hold a line end
    return hmac.digest(key, said.encode(), hashlib.sha256)


def creation_options(
    question: PasskeyChallenge, party: RelyingParty, *, user_id: str, name: str, known: Sequence[str]
) -> dict[str, Any]:
    """What `navigator.credentials.create` is given; bytes as base64url. `known`: credentials that this person has."""
    return {
        "challenge": pack(question.challenge),
        "rp": {"id": party.rp_id, "name": f"Ostiary at {party.rp_id}"},
        "user": {"id": pack(user_id.encode()), "name": name, "displayName": name},
        "pubKeyCredParams": [{"type": "public-key", "alg": algorithm} for algorithm in ALGORITHMS],
        "timeout": LIFETIME,
        "excludeCredentials": [{"type": "public-key", "id": each} for each in known],
        "authenticatorSelection": {
            "residentKey": "required",
            "requireResidentKey": True,
            "userVerification": "required",
        },
        "attestation": "none",
    }


def request_options(
    question: PasskeyChallenge, party: RelyingParty, *, known: Sequence[str]
) -> dict[str, Any]:
    """What `navigator.credentials.get` is given. Without `known` the person picks among all that are for this server."""
    return {
        "challenge": pack(question.challenge),
        "rpId": party.rp_id,
        "timeout": LIFETIME,
        "userVerification": "required",
        "allowCredentials": [{"type": "public-key", "id": each} for each in known],
    }


# ---------------------------------------------------------------- the answer


class _Created(msgspec.Struct, frozen=True):
    attestation_object: str = msgspec.field(name="attestationObject")
    client_data: str = msgspec.field(name="clientDataJSON")


class _Asserted(msgspec.Struct, frozen=True):
    authenticator_data: str = msgspec.field(name="authenticatorData")
    client_data: str = msgspec.field(name="clientDataJSON")
    signature: str
    user_handle: str | None = msgspec.field(name="userHandle", default=None)


class _Registration(msgspec.Struct, frozen=True):
    type: Literal["public-key"]
    id: str = msgspec.field(name="rawId")
    response: _Created


class _Assertion(msgspec.Struct, frozen=True):
    type: Literal["public-key"]
    id: str = msgspec.field(name="rawId")
    response: _Asserted


class PasskeyNotBelieved(msgspec.Struct, frozen=True):
    """The answer is malformed or does not fit the question. The reason is for the audit trail."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPasskey:
    """A new passkey, checked."""

    credential_id: str
    public_key: str = field(repr=False)
    sign_count: int
    rp_id: str
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PasskeyAnswer:
    """Somebody's answer, taken apart and not checked yet."""

    credential_id: str
    user_handle: str | None  # a user id, as the authenticator keeps it
    response: _Asserted = field(repr=False)


def verify_registration(
    text: str, party: RelyingParty, question: PasskeyChallenge
) -> NewPasskey | PasskeyNotBelieved:
    """§7.1: a credential that this authenticator just made, for us, at this address, for this question."""
    if len(text) > ANSWER_CHARACTERS:
        return PasskeyNotBelieved("the answer is too long")
    from fido2 import cbor

    try:
        said = msgspec.json.decode(text, type=_Registration)
        _refuse_frames(said.response.client_data)
        response = {"attestationObject": said.response.attestation_object}
        found = _server(party).register_complete(
            _state(question),
            {
                "id": said.id,
                "rawId": said.id,
                "type": said.type,
                "response": {**response, "clientDataJSON": said.response.client_data},
            },
        )
        credential = found.credential_data
        if credential is None or credential.credential_id != _bytes(said.id):
            return PasskeyNotBelieved("the answer is about another credential")
        key = dict[int, Any](credential.public_key)
        public_key = cbor.encode(key)
        if key.get(3) not in ALGORITHMS or len(public_key) > PUBLIC_KEY_BYTES:
            return PasskeyNotBelieved("the key is of a kind that was not asked for")
        if not 0 < len(credential.credential_id) <= CREDENTIAL_ID_BYTES:
            return PasskeyNotBelieved("the credential's id has an impossible length")
        count = int(found.counter)
    except Exception as error:  # what a library of parsers raises on bytes from outside has no common name
        return PasskeyNotBelieved(_reason(error))
    return NewPasskey(
        credential_id=pack(credential.credential_id),
        public_key=pack(public_key),
        sign_count=count,
        rp_id=party.rp_id,
    )


def read_assertion(text: str) -> PasskeyAnswer | PasskeyNotBelieved:
    """Which credential answers: needed to look its key up."""
    if len(text) > ANSWER_CHARACTERS:
        return PasskeyNotBelieved("the answer is too long")
    try:
        said = msgspec.json.decode(text, type=_Assertion)
        raw, handle = _bytes(said.id), said.response.user_handle
        user_handle = _bytes(handle).decode() if handle else None
    except (ValueError, RecursionError) as error:
        return PasskeyNotBelieved(_reason(error))
    if not 0 < len(raw) <= CREDENTIAL_ID_BYTES:
        return PasskeyNotBelieved("the credential's id has an impossible length")
    return PasskeyAnswer(credential_id=pack(raw), user_handle=user_handle, response=said.response)


def verify_assertion(
    assertion: PasskeyAnswer, party: RelyingParty, question: PasskeyChallenge, public_key: str
) -> int | PasskeyNotBelieved:
    """§7.2: signed by this key, for us, at this address, for this question. The authenticator's counter."""
    from fido2 import cbor
    from fido2.cose import CoseKey
    from fido2.webauthn import Aaguid, AttestedCredentialData, AuthenticatorData

    said = assertion.response
    try:
        _refuse_frames(said.client_data)
        stored: Any = cbor.decode(_bytes(public_key))  # pyright: ignore[reportUnknownMemberType]
        key = CoseKey.parse(stored)
        known = AttestedCredentialData.create(Aaguid.NONE, _bytes(assertion.credential_id), key)
        _server(party).authenticate_complete(
            _state(question),
            [known],
            {
                "id": assertion.credential_id,
                "rawId": assertion.credential_id,
                "type": "public-key",
                "response": {
                    "authenticatorData": said.authenticator_data,
                    "clientDataJSON": said.client_data,
                    "signature": said.signature,
                },
            },
        )
        return int(AuthenticatorData(_bytes(said.authenticator_data)).counter)
    except Exception as error:
        return PasskeyNotBelieved(_reason(error))


def _server(party: RelyingParty) -> Any:  # half of its types are unknown
    # 79 ms, with the first passkey that somebody uses.
    from fido2.server import Fido2Server
    from fido2.webauthn import PublicKeyCredentialRpEntity

    return Fido2Server(
        PublicKeyCredentialRpEntity(name="Ostiary", id=party.rp_id),
        # Its own rule lets neighbours under the same domain in.
        verify_origin=lambda origin: origin == party.origin,
    )


def _state(question: PasskeyChallenge) -> dict[str, str]:
    return {"challenge": pack(question.challenge), "user_verification": "required"}


def _refuse_frames(client_data: str) -> None:
    """None of our pages can be framed, so an answer that was given in a frame was given to somebody else."""
    said = msgspec.json.decode(_bytes(client_data), type=dict[str, Any])
    if said.get("crossOrigin", False) is not False or "topOrigin" in said:
        raise ValueError("Given in a frame.")


def _reason(error: Exception) -> str:
    """python-fido2's own sentences are about the rule that was broken; everything else is about an answer's shape."""
    text = str(error)
    ours = type(error) is ValueError and _SENTENCE.fullmatch(text)
    return text.rstrip(".") if ours else "the answer cannot be read"


# ---------------------------------------------------------------- bytes as text


def _bytes(text: str) -> bytes:
    """Raises `ValueError`. Stricter than Python's own, which skips what it does not know."""
    if _BASE64.fullmatch(text) is None:
        raise ValueError("Not base64url.")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
