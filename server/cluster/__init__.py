"""Several processes as one server: PostgreSQL, workers, and moving to another database."""
