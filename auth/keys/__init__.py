"""The keys that tokens are signed and proven with: made, sealed, replaced, used."""
