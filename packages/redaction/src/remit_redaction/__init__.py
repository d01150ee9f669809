"""Detectors of personal data and secrets: patterns, check digits and context words."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

_HOMES = {"remit_redaction.pipeline": ("detector_pipeline",)}

# The detectors compile many patterns: they are imported by the first hub that redacts.
if TYPE_CHECKING:
    from remit_redaction.pipeline import detector_pipeline as detector_pipeline
else:
    __getattr__ = lazy_names(__name__, _HOMES)
