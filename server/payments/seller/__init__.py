"""The seller: what a call costs, who pays for it and by which way, and the ledger."""
