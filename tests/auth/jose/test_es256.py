"""auth/jose/es256.py, against a general JOSE library: what we sign it accepts, what it signs we accept, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from auth.jose import es256 as signatures
from auth.jose.base64url import pack, unpack
from auth.jose.es256 import is_signed, sign
from auth.jose.public_keys import thumbprint

KEY = signatures.generate()
OTHER = signatures.generate()
FOREIGN = ECKey.import_key({**signatures.private_jwk(KEY)})
HEADER = pack(b'{"alg":"ES256"}')


@given(st.binary(max_size=200))
def test_a_general_library_accepts_what_we_sign_and_we_what_it_signs(payload: bytes) -> None:
    ours = sign(f"{HEADER}.{pack(payload)}".encode(), KEY).decode()
    assert jws.deserialize_compact(ours.encode(), FOREIGN, algorithms=["ES256"]).payload == payload
    assert is_signed(ours, KEY)
    theirs = jws.serialize_compact({"alg": "ES256"}, payload, FOREIGN, algorithms=["ES256"])
    assert is_signed(theirs, KEY)
    assert not is_signed(ours, OTHER)
    with pytest.raises(JoseError):
        jws.deserialize_compact(
            ours.encode(), ECKey.import_key({**signatures.public_jwk(OTHER)}), algorithms=["ES256"]
        )


@given(st.integers(min_value=0, max_value=10_000), st.integers(min_value=1, max_value=255))
def test_no_byte_can_be_changed(place: int, change: int) -> None:
    token = bytearray(sign(f"{HEADER}.{pack(b'payload')}".encode(), KEY))
    token[place % len(token)] ^= change
    assert not is_signed(token.decode("latin-1"), KEY)


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "A",
        "AAAA",
        pack(bytes(64)),
        pack(bytes(63)),
        pack(bytes(65)),
        pack(b"\xff" * 64),
        "+" * 86,
        "=" * 86,
        "ä" * 86,
    ],
)
def test_what_is_no_signature_is_refused_without_an_error(signature: str) -> None:
    assert not is_signed(f"{HEADER}.{pack(b'payload')}.{signature}", KEY)


def test_a_der_signature_is_not_taken_for_a_raw_one() -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    signed = f"{HEADER}.{pack(b'payload')}"
    assert not is_signed(f"{signed}.{pack(KEY.sign(signed.encode(), ECDSA(SHA256())))}", KEY)


def test_a_thumbprint_is_the_one_that_others_compute() -> None:
    assert thumbprint(signatures.public_jwk(KEY)) == FOREIGN.thumbprint()


def test_a_key_survives_its_jwk_and_members_that_do_not_belong_together_are_refused() -> None:
    jwk = signatures.private_jwk(KEY)
    assert signatures.private_jwk(signatures.load(jwk)) == jwk
    with pytest.raises(ValueError, match="belong together"):
        signatures.load({**jwk, "x": signatures.public_jwk(OTHER)["x"]})


@given(st.binary(max_size=100))
def test_packed_bytes_have_one_spelling(data: bytes) -> None:
    assert unpack(pack(data)) == data
    for text in (pack(data) + "=", pack(data) + "\n", " " + pack(data)):
        with pytest.raises(ValueError, match="base64url"):
            unpack(text)


def test_bits_beyond_the_last_byte_must_be_zero() -> None:
    assert unpack("AA") == b"\0"
    with pytest.raises(ValueError, match="one form"):
        unpack("AB")
