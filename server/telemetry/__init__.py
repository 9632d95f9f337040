"""Traces and metrics for whoever collects them: OTLP over HTTP. Loaded only where the settings name a collector."""
