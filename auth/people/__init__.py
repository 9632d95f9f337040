"""People: accounts, invitations, sign-in, browser sessions, and proving oneself once more."""
