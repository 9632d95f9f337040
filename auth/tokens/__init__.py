"""What a request shows to be let in: access tokens, API keys, proofs of possession, and whether they still count."""
