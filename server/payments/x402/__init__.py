"""The protocol x402: its values, and facilitators that carry payments out. Prices and wallets are the seller's."""
