"""What finds personal data and secrets, as a plugin of the core."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.policy.verdict import Detector


def redaction() -> "Detector":
    """Return all built-in detectors."""
    from remit_redaction.pipeline import detector_pipeline

    return detector_pipeline()
