"""A response as its user reads it: plain sentences without names of agents, codes and exceptions."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from remit.protocol.card import AgentCard
from remit.protocol.envelope import Response
from remit.words.failures import plain_part, plain_warning, with_plain_summary
from remit.words.names import hidden_names, without_names


def for_user(response: Response, cards: Callable[[], Iterable[AgentCard]]) -> Response:
    """Return a response as its user reads it; the record has the details.

    The result is left as it is: it is the agent's answer. *cards* are those of all agents of the hub.
    """
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
