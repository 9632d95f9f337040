"""Rights of a caller to what a server offers: `standing.py` says whether it may be used or known of, `tiers.py` what a tool can do."""
