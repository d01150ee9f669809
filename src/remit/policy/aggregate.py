"""How several responses become one answer."""

from collections.abc import Sequence

from remit.protocol.codec import text_of
from remit.protocol.envelope import Answer, Response, Source


def merge_all(responses: Sequence[Response]) -> Answer | None:
    """Combine what succeeded, in the order in which it was asked for; None if nothing did."""
    useful = [response for response in responses if response.ok]
    if not useful:
        return None
    rated = [response.confidence for response in useful if response.confidence is not None]
    sources: dict[tuple[str, str], Source] = {}
    for source in (source for response in useful for source in response.sources):
        sources.setdefault((source.owner_scope, source.source_id), source)
    return Answer(
        "\n\n".join(text_of(response.result) for response in useful),
        confidence=sum(rated) / len(rated) if rated else None,
        artifacts=tuple(artifact for response in useful for artifact in response.artifacts),
        new_facts=tuple(dict.fromkeys(fact for response in useful for fact in response.new_facts)),
        sources=tuple(sources.values()),
        warnings=tuple(warning for response in useful for warning in response.warnings),
        finished=tuple(response.target for response in useful),
        unfinished=tuple(response.target for response in responses if not response.ok),
        metadata={"aggregated": True, "responseCount": len(useful), "strategy": "merge-all"},
    )
