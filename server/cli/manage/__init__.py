"""Commands that manage a server: who may come in, what was called, its store, keys and upstreams."""
