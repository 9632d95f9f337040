"""Spans of requests that are traced. Sending them is `server/telemetry`."""
