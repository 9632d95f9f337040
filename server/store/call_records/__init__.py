"""Records of calls: what was called, by whom, and what came of it."""
