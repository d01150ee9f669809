"""Reads the texts of people and agents by rules, for the core."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from remit.policy.aggregate import Blend
from remit.ports import Store, Summarizer, TokenCounter
from remit.ports.agents import ConversationReader
from remit.protocol.card import AgentCard, Capability
from remit.protocol.envelope import Answer, Json, Response
from remit.words.components import Component, Findings
from remit.words.failures import plain_part, plain_warning, with_plain_summary
from remit.words.names import hidden_names, without_names

# Each method loads what it needs: most hubs read few kinds of texts.


class RuleReader:
    """Reads English and German by rules."""

    def conversations(self, store: Store, summarizer: Summarizer | None, count: TokenCounter) -> ConversationReader:
        from remit_orchestrator.summaries import Summaries

        return Summaries(store, summarizer, count)

    def conflicts(
        self, components: Sequence[Component], codes: Sequence[str | None], capabilities: Iterable[Capability]
    ) -> Findings | None:
        from remit_orchestrator.text.conflicts import find
        from remit_orchestrator.text.conflicts.fields import same_fields, with_same_fields

        if len(set(codes)) > 1:
            same = same_fields(each for each in capabilities if each.code in codes)
            components = with_same_fields(components, codes, same)
        return find(components)

    def gist(self, text: str) -> Json:
        from remit_orchestrator.text.paraphrases import gist

        return gist(text)

    def for_user(self, response: Response, cards: Callable[[], Iterable[AgentCard]]) -> Response:
        # The result is left as it is: it is the agent's answer, and the record has the details.
        response = with_plain_summary(response)
        if not (response.warnings or response.finished or response.unfinished):
            return response
        hidden = hidden_names(cards())
        warnings = (without_names(plain_warning(each), hidden) for each in response.warnings)
        return replace(
            response,
            warnings=tuple(dict.fromkeys(warnings)),
            finished=tuple(without_names(each, hidden) for each in response.finished),
            unfinished=tuple(without_names(plain_part(each), hidden) for each in response.unfinished),
        )

    def blended(self, merged: Answer, text: str, blend: Blend) -> Answer:
        from remit_orchestrator.text.faithfulness import blended

        return blended(merged, text, blend)
