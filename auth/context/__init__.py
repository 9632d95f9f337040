"""The bag of parts (store, clock, keys, policy, hashing) that every endpoint and every page is handed."""
