"""What a classifier is given of a text."""

from remit_orchestrator.text.classification import ScoredCapability, hear


class Listens:
    """A scorer that keeps what it was asked about."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def scores(self, text: str) -> list[ScoredCapability]:
        self.texts.append(text)
        return []


def test_the_random_letters_of_a_redacted_value_do_not_reach_the_scorer() -> None:
    """The same text would be understood in one run and asked about in the next."""
    scorer = Listens()
    text = "My address is [EMAIL:bcdfghjklmnp]. Tell me the news, and cancel my order."
    classified = hear(text, scorer)
    assert scorer.texts[0] == "My address is email. Tell me the news, and cancel my order."
    assert not any("bcdfghjklmnp" in each for each in scorer.texts)
    # The agents need the token.
    assert any("[EMAIL:bcdfghjklmnp]" in each.text for each in classified.plan)
