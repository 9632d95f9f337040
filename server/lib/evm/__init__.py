"""Signatures, addresses and typed data of an EVM chain. Pure, without a network."""
