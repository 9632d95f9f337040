"""Keccak-256 against published values, and around the ends of its blocks against those of another implementation."""

from __future__ import annotations

import hashlib

import pytest

from server.lib.evm.keccak import keccak256


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"abc", "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
        (
            b"The quick brown fox jumps over the lazy dog",
            "4d741b6f1eb29cb2a9b9911c82f56fa8d73b04959d3d9d222895df6c0b28aa15",
        ),
        # The hash of an event that every token has.
        (
            b"Transfer(address,address,uint256)",
            "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
        ),
    ],
)
def test_known_texts_have_their_known_hashes(text: bytes, digest: str) -> None:
    assert keccak256(text).hex() == digest


@pytest.mark.parametrize(
    ("length", "digest"),
    [
        (135, "cbdfd9dee5faad3818d6b06f95a219fd290b0e1706f6a82e5a595b9ce9faca62"),
        (136, "7ce759f1ab7f9ce437719970c26b0a66ff11fe3e38e17df89cf5d29c7d7f807e"),
        (137, "ac73d4fae68b8453f764007c1a20ce95994187861f0c3227a3a8e99a73a3b1db"),
        (300, "4699841dafd5e26cca72b05a41d38c96b4b468e5a6cbf694cbebe77dacdf6528"),
    ],
)
def test_a_text_that_just_fills_a_block_is_padded_by_another(length: int, digest: str) -> None:
    assert keccak256(bytes(index % 251 for index in range(length))).hex() == digest


def test_it_is_not_the_sha3_that_came_of_it() -> None:
    assert keccak256(b"abc") != hashlib.sha3_256(b"abc").digest()
