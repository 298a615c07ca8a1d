"""Telemetry out: Prometheus metrics and spans of decisions."""
