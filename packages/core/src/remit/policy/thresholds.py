"""How likely a classification must be for each action, and how long a decision holds."""

from typing import Annotated

from msgspec import Meta, Struct

Share = Annotated[float, Meta(ge=0, le=1)]


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How likely a classification must be for each action.

    The figures in the comments are for 950 texts of CLINC150, with ten examples for each of its 150 intents and one
    text in five that matches none: first by words, then by embeddings.
    """

    # Routed without a question: two thirds and three quarters of the texts that match a capability; 85 and 93 % of
    # these were right.
    act: Share = 0.6
    # A capability that only reads may be tried at a lower confidence, one that changes something needs a higher one;
    # both only if the text is clear. If the classifier does not say how clear a text is, `act` replaces both. With
    # embeddings and eight intents of BANKING77 as capabilities, these values route 29 and 9 % of the texts of its other
    # intents; 0.45 and 0.7, with a confidence that did not count on such texts, routed 38 and 19 %.
    read: Share = 0.35
    change: Share = 0.6
    # A further intent of the same request: doing something that nobody asked for is worse than missing it. One text in
    # a thousand with a single intent was given a second one.
    also: Share = 0.7
    # Offered as options if together they are at least this likely: in four of five offers the right one was among them.
    offer: Share = 0.5
    # An option has at least this share of the best one's probability; less likely ones only make the choice harder.
    close: Share = 0.34
    # Below this the user is told that nothing matches: four of five texts that match none, and 16 and 5 % of the
    # others.
    nothing: Share = 0.25


THRESHOLDS = Thresholds()

# How long a decision is reused: for users who repeat a failed request, or talk in circles.
DECISION_MS = 10 * 60_000
