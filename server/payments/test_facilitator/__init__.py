"""A facilitator for trying payments out and testing them: it checks as real ones do, but its coins are worthless and there is no chain."""
