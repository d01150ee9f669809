"""Presidio's analyzer as a detector, for names, places and whatever else its recognizers find."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from remit.installed import install_command
from remit.policy.verdict import Detector, Finding
from remit.runtime.registry import team_invalid

# Presidio's names for kinds that have a name here; all others keep theirs.
KINDS: dict[str, str] = {
    "EMAIL_ADDRESS": "EMAIL",
    "PHONE_NUMBER": "PHONE",
    "IBAN_CODE": "IBAN",
    "IP_ADDRESS": "IP",
    "MAC_ADDRESS": "MAC",
    "CRYPTO": "BTC_ADDRESS",
    "US_SSN": "SSN",
    "US_ITIN": "ITIN",
    "US_PASSPORT": "PASSPORT",
    "UK_PASSPORT": "PASSPORT",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
    "UK_NHS": "NHS_NUMBER",
    "UK_NINO": "NINO",
    "CA_SIN": "SIN",
    "GPE": "LOCATION",
}

# Presidio's score for a telephone number without words around it. Patterns that score less are wrong as often as right.
SCORE_THRESHOLD = 0.4

_NOT_IN_A_KIND = re.compile(r"[^A-Z0-9_]")


def presidio_detector(
    *,
    language: str = "en",
    entities: Sequence[str] | None = None,
    score_threshold: float = SCORE_THRESHOLD,
    nlp: Literal["none"] | object = "none",
) -> Detector:
    """Return a detector that calls Presidio, with its names for kinds mapped to ours.

    *entities* are Presidio's names (None: all). Without a model (*nlp* `"none"`) it finds what has a pattern; with an
    `NlpEngine` of the user's own also names and places. The engine is created at once, so that a team learns at its
    start what is missing.

    Raises TEAM_INVALID if Presidio is not installed or does not know the language or an entity.
    """
    analyze = _analyzer(language, nlp)
    wanted = None if entities is None else list(entities)
    try:
        analyze("", wanted, score_threshold)
    except ValueError as error:
        raise team_invalid(f"Presidio cannot look for {wanted} in {language!r}: {error}") from error

    def detect(text: str) -> Iterator[Finding]:
        for entity in analyze(text, wanted, score_threshold):
            yield Finding(entity.start, entity.end, _kind(entity.entity_type), entity.score)

    return detect


def _kind(entity: str) -> str:
    return KINDS.get(entity) or _NOT_IN_A_KIND.sub("_", entity.upper())[:32]


def _analyzer(language: str, nlp: object) -> Callable[[str, list[str] | None, float], Sequence[Any]]:
    """Return Presidio's `analyze` with the constant arguments filled in."""
    try:
        import presidio_analyzer  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise team_invalid(
            f"the detector `presidio` needs Presidio's analyzer; install it with {install_command('presidio')}"
        ) from error
    presidio: Any = presidio_analyzer  # pyright: ignore[reportUnknownVariableType]
    engine = _no_model(language) if nlp == "none" else nlp
    registry = presidio.RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language], nlp_engine=engine)
    analyzer = presidio.AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language])

    def analyze(text: str, entities: list[str] | None, score_threshold: float) -> Sequence[Any]:
        return analyzer.analyze(text=text, language=language, entities=entities, score_threshold=score_threshold)

    return analyze


def _no_model(language: str) -> object:
    """Return an NLP engine without a model: patterns need none."""
    from presidio_analyzer import nlp_engine  # pyright: ignore

    make: Any = getattr(nlp_engine, "NoOpNlpEngine", None)  # pyright: ignore
    if make is None:
        raise team_invalid(
            f"this Presidio cannot do without a model; install a later one: {install_command('presidio')} -U"
        )
    engine: Any = make(models=[{"lang_code": language, "model_name": ""}])
    engine.load()
    return engine
