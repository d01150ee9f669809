"""The record as OpenTelemetry has it: spans and metrics, delivered to a collector."""
