"""Telemetry: traces and metrics sent to a collector (OTLP over HTTP). Loaded only where the settings name one."""
