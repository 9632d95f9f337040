"""Idempotent calls: the same call made again is given the first answer, whether it costs something or not."""
