"""The store: jobs run against SQLite in transactions, and what keeps their data safe on disk."""
