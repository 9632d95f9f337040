"""One client over a pair of pipes."""
