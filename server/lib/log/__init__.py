"""The log, and metrics as Prometheus reads them."""
