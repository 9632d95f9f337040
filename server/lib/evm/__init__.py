"""What an EVM chain wants to see signed: hashes, keys, addresses, typed data. Pure: no network, and nothing of payments."""
