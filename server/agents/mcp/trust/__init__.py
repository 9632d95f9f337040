"""Which upstream is believed what, and as whom it is called: pins of what it offers, logins at it, tokens of ours for it."""
