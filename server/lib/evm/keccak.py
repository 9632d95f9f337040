"""Keccak-256, as Ethereum uses it: the sponge of FIPS 202 with the padding from before it became SHA3-256, which hashlib has not.

Slow (half a millisecond for a block), for what is hashed here is a few short texts for each payment.
"""

from __future__ import annotations

from typing import Final

# Keccak reference, §1.2: the lanes' constants by round, and how far the lanes are rotated, in the order in which pi visits them.
_ROUNDS: Final = (
    0x0000000000000001, 0x0000000000008082, 0x800000000000808A, 0x8000000080008000, 0x000000000000808B, 0x0000000080000001,
    0x8000000080008081, 0x8000000000008009, 0x000000000000008A, 0x0000000000000088, 0x0000000080008009, 0x000000008000000A,
    0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
    0x000000000000800A, 0x800000008000000A, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
)  # fmt: skip
_TURNS: Final = (1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44)
_PLACES: Final = (10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1)
_STEPS: Final = tuple(zip(_TURNS, _PLACES, strict=True))
_LANE: Final = 2**64 - 1
# 1600 bits of state less twice the 256 of the hash.
_RATE: Final = 136
_HASH: Final = 32


def keccak256(data: bytes) -> bytes:
    # One bit behind the data and one at the end of the block: SHA3 would begin with 0x06.
    padding = bytearray(_RATE - len(data) % _RATE)
    padding[0] ^= 0x01
    padding[-1] ^= 0x80
    padded = data + padding
    lanes = [0] * 25
    for start in range(0, len(padded), _RATE):
        for index in range(_RATE // 8):
            lanes[index] ^= int.from_bytes(padded[start + index * 8 : start + index * 8 + 8], "little")
        _permute(lanes)
    return b"".join(lane.to_bytes(8, "little") for lane in lanes[: _HASH // 8])


def _permute(lanes: list[int]) -> None:
    """Keccak-f[1600] in place: theta, rho and pi, chi, iota, 24 times."""
    for constant in _ROUNDS:
        columns = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
        for x in range(5):
            mixed = columns[x - 1] ^ _rotated(columns[(x + 1) % 5], 1)
            for y in range(x, 25, 5):
                lanes[y] ^= mixed
        moved = lanes[1]
        for turn, place in _STEPS:
            lanes[place], moved = _rotated(moved, turn), lanes[place]
        for y in range(0, 25, 5):
            row = lanes[y : y + 5]
            for x in range(5):
                lanes[y + x] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5] & _LANE)
        lanes[0] ^= constant


def _rotated(lane: int, turn: int) -> int:
    return (lane << turn | lane >> (64 - turn)) & _LANE
