"""x402: payments as a protocol, its values and those who carry them out. Prices, wallets and books are the till's."""
