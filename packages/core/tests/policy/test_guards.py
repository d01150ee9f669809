"""All guards at once: what is explained of them, and the one look at a text like the last one."""

import pytest

from remit.policy.guards import GUARDS, LAST, explain, passes_again, tool
from remit.policy.redaction import KnownValuesDetector, is_clean
from remit.policy.verdict import ALLOW, Facts, Finding, Sealing
from remit.protocol.card import ToolCard
from samples import a_card, a_remit, a_request

FACTS = Facts(target=a_card(), address="tag@hub", caller=a_card(name="prime", may_call=frozenset({"tag"})))


def test_every_guard_is_explained_in_its_order() -> None:
    assert explain(a_request(), FACTS) == [(guard.__name__, ALLOW) for guard in (*GUARDS, LAST)]


def test_a_tool_that_an_agent_has_may_be_used() -> None:
    find = ToolCard(name="find", input_schema={})
    assert tool(a_request(target="find", act="tool"), Facts(target=None, tool=find)) == ALLOW


@pytest.mark.parametrize(("tokens", "passes"), [(1_200, True), (0, False), (1, False)])
def test_a_text_passes_again_if_it_fits_into_its_tokens(tokens: int, passes: bool) -> None:
    assert passes_again(a_request(remit=a_remit(tokens=tokens)), FACTS) is passes


def finds_mail(text: str) -> list[Finding]:
    return [Finding(text.index("ann"), len(text), "EMAIL")] if "@" in text else []


def test_a_text_is_clean_if_nothing_in_it_has_to_be_redacted() -> None:
    sealing = Sealing(bytes(16), finds_mail)
    assert is_clean(a_request(objective="two"), sealing)
    assert not is_clean(a_request(objective="to ann@example.org"), sealing)
    assert is_clean(a_request(objective="to ann@example.org"), None)


def test_a_text_that_cannot_be_examined_is_not_clean() -> None:
    def fails(_: str) -> list[Finding]:
        raise ValueError

    assert not is_clean(a_request(), Sealing(bytes(16), fails))


def test_a_known_secret_is_found_as_a_whole_word_in_every_later_text() -> None:
    detect = KnownValuesDetector(finds_mail, {"hunter2": "PASSWORD"})
    assert detect("nothing") == []
    assert detect("hunter22") == []
    assert detect("is hunter2!") == [Finding(3, 10, "PASSWORD")]
    assert detect("hunter22 hunter2 ann@x") == [Finding(9, 16, "PASSWORD"), Finding(17, 22, "EMAIL")]
