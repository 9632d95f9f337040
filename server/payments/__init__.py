"""Payments: the protocol x402, a buyer, a seller, and a facilitator for tests."""
