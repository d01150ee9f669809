"""Detectors of personal data and secrets: patterns, check digits and context words."""

from typing import TYPE_CHECKING

from remit.protocol.lazy_names import lazy_names

# The detectors compile many patterns: they are imported by the first hub that redacts.
if TYPE_CHECKING:
    from remit.detectors.pipeline import detector_pipeline as detector_pipeline
else:
    __getattr__ = lazy_names(__name__, {"remit.detectors.pipeline": ("detector_pipeline",)})
