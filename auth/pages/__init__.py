"""Pages that people are asked on: sign-in, consent, user codes, passkeys; `account/` is Access and You."""
