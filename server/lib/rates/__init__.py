"""Rates, how much of them is used, and fair turns at an agent. Pure decisions: a number and a time in, a wait out."""
