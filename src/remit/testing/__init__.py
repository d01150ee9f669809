"""Fakes and conformance suites, for this project's tests and for yours."""
