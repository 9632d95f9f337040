"""Counts that stop floods and guesses: requests in memory, attempts in the store."""
