"""Signatures of Ethereum: ECDSA on secp256k1 with r, s and one bit more, by which the signer's address is found.

Whatever touches a private key is done by `cryptography`, in constant time and with the nonce of RFC 6979. The arithmetic below works on
signatures and public keys alone, which are no secrets.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, TypeAlias

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature

from server.lib.evm.evm_addresses import address_of_point

# SEC 2, §2.4.1: y² = x³ + 7 over the integers modulo P, and a point G of the prime order N.
P: Final = 2**256 - 2**32 - 977
N: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_G: Final = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
DIGEST_BYTES: Final = 32
SIGNATURE_BYTES: Final = 65

Point: TypeAlias = "tuple[int, int]"
# x/z², y/z³: z is 0 at infinity, and only there.
_Jacobian: TypeAlias = "tuple[int, int, int]"
_INFINITY: Final = (1, 1, 0)


class BadChainSignature(ValueError):
    """It is no signature of anybody; says why."""


class BadPrivateKey(ValueError):
    """The number is not one that can be a private key. Never says which it is."""


class PrivateKey:
    """Someone's key. It signs and has an address; it is never shown, not even by `repr`."""

    def __init__(self, secret: bytes) -> None:
        """Raises `BadPrivateKey`."""
        number = int.from_bytes(secret, "big")
        if len(secret) != 32 or not 0 < number < N:
            raise BadPrivateKey("is outside the range of private keys")
        self._key = ec.derive_private_key(number, ec.SECP256K1())

    @classmethod
    def generate(cls) -> PrivateKey:
        return cls(_secret_of(ec.generate_private_key(ec.SECP256K1())))

    @cached_property
    def address(self) -> str:
        numbers = self._key.public_key().public_numbers()
        return address_of_point(numbers.x, numbers.y)

    def sign(self, digest: bytes) -> bytes:
        """r, s and v (27 or 28): the same for the same digest, with the lower of the two possible s (EIP-2)."""
        if len(digest) != DIGEST_BYTES:
            raise ValueError("a digest has 32 bytes")
        algorithm = ec.ECDSA(Prehashed(hashes.SHA256()), deterministic_signing=True)
        r, s = decode_dss_signature(self._key.sign(digest, algorithm))
        half = r.to_bytes(32, "big") + min(s, N - s).to_bytes(32, "big")
        for v in (27, 28):
            signature = half + bytes([v])
            if _recovered(digest, signature) == self.address:
                return signature
        # r was reduced modulo N: nobody will ever see this happen, and no chain could say whose signature it is.
        raise BadChainSignature("came out as one that no chain accepts")

    def secret(self) -> bytes:
        """For a key file, and nothing else."""
        return _secret_of(self._key)

    def __repr__(self) -> str:
        return f"PrivateKey(of {self.address})"

    def __reduce__(self) -> str:
        raise TypeError("a private key is not copied elsewhere")


def recover(digest: bytes, signature: bytes) -> str:
    """The address of whoever signed `digest`. A wrong signature is somebody's all the same: compare. Raises `BadChainSignature`
    for what a chain would refuse, and for the other form that every signature has (a high s)."""
    if len(digest) != DIGEST_BYTES:
        raise ValueError("a digest has 32 bytes")
    if len(signature) != SIGNATURE_BYTES:
        raise BadChainSignature("has not 65 bytes")
    found = _recovered(digest, signature)
    if found is None:
        raise BadChainSignature("is nobody's")
    return found


def _recovered(digest: bytes, signature: bytes) -> str | None:
    r, s, v = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big"), signature[64]
    if v not in (0, 1, 27, 28):
        raise BadChainSignature("has a last byte other than 27 and 28")
    if not 0 < r < N:
        raise BadChainSignature("has an r out of range")
    if not 0 < s <= N // 2:
        raise BadChainSignature("has an s out of range, or the higher of the two possible ones")
    # SEC 1, §4.1.6: Q = (s·R - e·G) / r, where R is the point with this x and an even or odd y.
    y = pow(pow(r, 3, P) + 7, (P + 1) // 4, P)
    if (y * y - pow(r, 3, P) - 7) % P:
        return None
    if y % 2 != (v - 27 if v >= 27 else v):
        y = P - y
    inverse = pow(r, -1, N)
    e = int.from_bytes(digest, "big")
    found = _plain(_two_products(_G, -e * inverse % N, (r, y), s * inverse % N))
    return None if found is None else address_of_point(*found)


def _secret_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_numbers().private_value.to_bytes(32, "big")


# ── points ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _two_products(one: Point, m: int, other: Point, n: int) -> _Jacobian:
    """m·one + n·other, in one pass over the bits of both (Shamir's trick)."""
    first, second = (*one, 1), (*other, 1)
    summands = (_INFINITY, first, second, _added(first, second))
    found: _Jacobian = _INFINITY
    for bit in range(max(m.bit_length(), n.bit_length()) - 1, -1, -1):
        found = _doubled(found)
        which = (m >> bit & 1) | (n >> bit & 1) << 1
        if which:
            found = _added(found, summands[which])
    return found


def _doubled(point: _Jacobian) -> _Jacobian:
    x, y, z = point
    if not z:
        return _INFINITY
    # No point of this curve has y = 0, for its order is odd.
    yy = y * y % P
    slope, middle = 3 * x * x % P, 4 * x * yy % P
    xx = (slope * slope - 2 * middle) % P
    return xx, (slope * (middle - xx) - 8 * yy * yy) % P, 2 * y * z % P


def _added(one: _Jacobian, other: _Jacobian) -> _Jacobian:
    x1, y1, z1 = one
    x2, y2, z2 = other
    if not z1:
        return other
    if not z2:
        return one
    zz1, zz2 = z1 * z1 % P, z2 * z2 % P
    u1, u2 = x1 * zz2 % P, x2 * zz1 % P
    s1, s2 = y1 * zz2 * z2 % P, y2 * zz1 * z1 % P
    if u1 == u2:
        return _doubled(one) if s1 == s2 else _INFINITY
    h, slope = u2 - u1, s2 - s1
    hh = h * h % P
    hhh, middle = h * hh % P, u1 * hh % P
    x3 = (slope * slope - hhh - 2 * middle) % P
    return x3, (slope * (middle - x3) - s1 * hhh) % P, h * z1 * z2 % P


def _plain(point: _Jacobian) -> Point | None:
    x, y, z = point
    if not z:
        return None
    inverse = pow(z, -1, P)
    square = inverse * inverse % P
    return x * square % P, y * square * inverse % P
