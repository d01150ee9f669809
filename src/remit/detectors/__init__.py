"""Detectors of personal data and secrets: patterns, check digits and context words."""
