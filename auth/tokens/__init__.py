"""Credentials that a request shows: access tokens and API keys, made, presented and checked, and the challenge without one."""
