"""The detector of personal data for a team."""

from remit.config.code import code_at, found
from remit.config.team import Team
from remit.detectors.pipeline import DEFAULT_REGIONS, pipeline
from remit.policy.verdict import Detector


def detector_of(team: Team) -> Detector | bool:
    """Return the detector for data that a team's agents must not see; False if redaction is off."""
    said = team.redaction
    if not said.enabled:
        return False
    return pipeline(
        kinds=said.kinds,
        extra=[found(code_at, run, team.folder) for run in said.detectors],
        patterns=said.patterns,
        regions=DEFAULT_REGIONS if said.regions is None else said.regions,
    )
