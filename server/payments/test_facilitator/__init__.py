"""A facilitator for tests: it checks as real ones do, its coins are worthless, and there is no chain."""
