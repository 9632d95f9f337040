"""Passkeys: the ceremony with the authenticator, the rows, and the pages that ask for one."""
