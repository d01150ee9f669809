"""Who may call whom, for which user, with which tools."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from remit.policy.guards import arguments, guards_of_use, known_target, permission, tools, user
from remit.policy.limits import Limits
from remit.policy.verdict import ALLOW, Facts, Refuse, Verdict
from remit.protocol.card import Capability
from remit.protocol.envelope import NOBODY, Handoff, Json, Source
from remit.protocol.errors import Code
from remit.protocol.remit import Tools, meet
from samples import a_card, a_remit, a_request, code_of
from strategies import name_sets, optional

TAG = a_card()


# ── the callee ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("agents", "hint"),
    [
        (("tags", "byte"), "did you mean `tags`?"),
        (("ledger", "byte"), "known agents: byte, ledger"),
        ((), "known agents: none"),
    ],
)
def test_an_agent_that_is_not_registered_is_not_found(agents: tuple[str, ...], hint: str) -> None:
    """O5: the target must exist."""
    assert code_of(known_target(a_request(), Facts(target=None, agents=agents))) is Code.AGENT_NOT_FOUND


def test_a_capability_that_no_agent_offers_is_not_found() -> None:
    """K1: capability_code must be registered."""
    assert (
        code_of(known_target(a_request(target=NOBODY, capability="ANL_NPV"), Facts(target=None, agents=("tag",))))
        is Code.CAPABILITY_NOT_FOUND
    )


def test_an_agent_can_be_asked_for_what_it_offers_or_just_asked() -> None:
    """K1: capability_code must be registered."""
    facts = Facts(target=a_card(capabilities=(Capability(code="TAG_CATEGORIZE"),)))
    assert known_target(a_request(), facts) == ALLOW
    assert known_target(a_request(capability="TAG_CATEGORIZE"), facts) == ALLOW


@pytest.mark.parametrize(
    ("codes", "offered"), [(("TAG_CATEGORIZE", "TAG_LIST"), "TAG_CATEGORIZE, TAG_LIST"), ((), "none")]
)
def test_a_capability_that_the_agent_does_not_offer_is_not_found(codes: tuple[str, ...], offered: str) -> None:
    """K1: capability_code must be registered."""
    facts = Facts(target=a_card(capabilities=tuple(Capability(code=code) for code in codes)))
    assert code_of(known_target(a_request(capability="ANL_NPV"), facts)) is Code.CAPABILITY_NOT_FOUND


# ── the caller ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_person_may_ask_any_agent() -> None:
    assert permission(a_request(origin="user"), Facts(target=TAG)) == ALLOW


def test_an_agent_may_ask_whom_its_team_names() -> None:
    """O5: only an agent that is allowed to may call."""
    caller = a_card(name="prime", may_call=frozenset({"tag"}))
    assert permission(a_request(), Facts(target=TAG, caller=caller, held=a_remit())) == ALLOW


def test_an_agent_may_not_ask_whom_its_team_does_not_name() -> None:
    """O5: default deny between agents."""
    caller = a_card(name="prime", may_call=frozenset({"byte"}))
    assert code_of(permission(a_request(), Facts(target=TAG, caller=caller, held=a_remit()))) is Code.PERMISSION_DENIED


def test_an_agent_that_is_barred_from_calling_may_ask_nobody() -> None:
    """O5: only an agent with allow_sub_agent_calls may call."""
    caller = a_card(name="prime", may_call=frozenset({"tag"}), allow_sub_agent_calls=False)
    assert code_of(permission(a_request(), Facts(target=TAG, caller=caller, held=a_remit()))) is Code.PERMISSION_DENIED


def test_an_agent_may_not_ask_whom_its_own_remit_leaves_out() -> None:
    caller = a_card(name="prime", may_call=frozenset({"*"}))
    held = a_remit(targets=frozenset({"byte"}))
    facts = Facts(target=TAG, caller=caller, held=held)
    assert permission(a_request(target="byte"), facts) == ALLOW
    assert code_of(permission(a_request(), facts)) is Code.PERMISSION_DENIED


# ── the user ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_session_or_one_of_the_same_user_and_agent_passes() -> None:
    """X10: a child session of the same user."""
    assert user(a_request(), Facts(target=TAG)) == ALLOW
    assert user(a_request(session="s-1"), Facts(target=TAG, session_user="u-1", session_agent="tag")) == ALLOW


def test_a_session_of_another_user_is_refused_as_a_security_violation() -> None:
    """X10: a child session of another user is refused."""
    facts = Facts(target=TAG, session_user="u-2", session_agent="tag")
    assert code_of(user(a_request(session="s-1"), facts)) is Code.USER_MISMATCH


def test_a_session_with_another_agent_is_refused() -> None:
    facts = Facts(target=TAG, session_user="u-1", session_agent="byte")
    assert code_of(user(a_request(session="s-1"), facts)) is Code.PERMISSION_DENIED


def referring(*scopes: str) -> Verdict:
    references = tuple(Source(owner_scope=scope, source_id=f"doc-{scope}") for scope in scopes)
    facts = Facts(target=TAG, limits=Limits(shared_scopes=frozenset({"public", "team"})))
    return user(a_request(handoff=Handoff(references=references)), facts)


def test_references_to_what_the_user_owns_or_everyone_may_see_pass() -> None:
    """X10: references (`owner_scope`) are checked against the remit's user."""
    assert [referring(), referring("u-1"), referring("u-1", "public", "team")] == [ALLOW] * 3


def test_a_reference_to_what_another_user_owns_is_refused() -> None:
    """X10: references (`owner_scope`) are checked against the remit's user."""
    assert code_of(referring("u-1", "u-2")) is Code.USER_MISMATCH


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

CODER = a_card(tools=frozenset({"read", "write"}))


def test_a_caller_that_names_no_tools_leaves_the_callee_its_own() -> None:
    """O6: the caller can restrict the callee's tools."""
    assert tools(a_request(), Facts(target=CODER)) == ALLOW


def test_the_tools_of_an_agent_that_does_not_exist_are_nobodys_business() -> None:
    assert tools(a_request(), Facts(target=None, asked_tools=frozenset({"shell"}))) == ALLOW


def test_a_caller_may_restrict_the_callee_to_some_of_its_tools() -> None:
    """O6: the caller can restrict the callee's tools."""
    for held in (None, a_remit(), a_remit(tools=frozenset({"read", "shell"}))):
        assert tools(a_request(), Facts(target=CODER, held=held, asked_tools=frozenset({"read"}))) == ALLOW


def test_a_caller_cannot_give_the_callee_a_tool_that_is_not_in_its_card() -> None:
    """X11: a tool that is not in the target's tools_allowed cannot be used; O6: never widen."""
    facts = Facts(target=CODER, asked_tools=frozenset({"read", "shell", "browse"}))
    assert code_of(tools(a_request(), facts)) is Code.TOOL_NOT_ALLOWED


def test_a_caller_cannot_pass_on_a_tool_that_its_own_remit_leaves_out() -> None:
    """X11: nor by way of another agent; O6: never widen."""
    held = a_remit(tools=frozenset({"read"}))
    facts = Facts(target=CODER, held=held, asked_tools=frozenset({"read", "write"}))
    assert code_of(tools(a_request(), facts)) is Code.TOOL_NOT_ALLOWED


def test_conditions_on_arguments_name_tools_as_names_do() -> None:
    limits = {"read": {"path": "/tmp/*"}}
    held, facts = a_remit(tools=limits), Facts(target=CODER, asked_tools=frozenset(limits))
    assert tools(a_request(remit=held), replace(facts, held=held)) == ALLOW
    more = replace(facts, held=held, asked_tools=frozenset({"read", "write"}))
    assert code_of(tools(a_request(remit=held), more)) is Code.TOOL_NOT_ALLOWED


def test_conditions_may_name_tools_that_only_the_hub_of_the_callee_knows_if_it_judges_them() -> None:
    there = a_card()
    facts, limited = Facts(target=there, asked_tools=frozenset({"pay"})), a_request(remit=a_remit(tools={"pay": {}}))
    assert tools(limited, replace(facts, judged_elsewhere=True)) == ALLOW
    assert code_of(tools(limited, replace(facts, judged_elsewhere=False))) is Code.TOOL_NOT_ALLOWED
    for request, known in ((limited, facts), (a_request(), replace(facts, judged_elsewhere=True))):
        assert code_of(tools(request, known)) is Code.TOOL_NOT_ALLOWED
    named = replace(facts, target=CODER, judged_elsewhere=True)  # its team says which it has
    assert code_of(tools(limited, named)) is Code.TOOL_NOT_ALLOWED
    inherited = Facts(target=there, judged_elsewhere=False)
    assert code_of(tools(limited, inherited)) is Code.TOOL_NOT_ALLOWED


def test_a_comparison_without_a_number_is_refused_with_its_place() -> None:
    remit = a_remit(tools={"look": {}, "pay": ({"to": "bob"}, {"amount": "<= much"})})
    verdict = tools(a_request(remit=remit), Facts(target=CODER))
    assert isinstance(verdict, Refuse)
    assert (verdict.fault.code, verdict.fault.message) == (
        Code.INPUT_VALIDATION_FAILED,
        "tools.pay.amount: `<= much` compares with no number; write it like `> 500`",
    )


LIMITS: Tools = {"pay": ({"amount": "<= 100"}, {"to": ("bob", "ann")}), "look": {}}


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("pay", {"amount": 100, "to": "bob"}, None),
        ("pay", {"amount": 100, "to": ["bob", "ann"]}, None),
        ("look", {"at": "all"}, None),
        ("pay", {"amount": 101, "to": "bob"}, '`amount` is "<= 100"'),
        ("pay", {"amount": 100, "to": ["bob", "eve"]}, '`to` is ["bob","ann"]'),  # every one has to be allowed
        ("pay", {"amount": 100, "to": []}, '`to` is ["bob","ann"]'),
        ("pay", {"amount": 100}, '`to` is ["bob","ann"]'),  # missing
        ("pay", {"amount": "much", "to": "bob"}, '`amount` is "<= 100"'),  # of another kind
    ],
)
def test_a_use_of_a_tool_keeps_to_the_conditions_of_the_remit(tool: str, given: Json, expected: str | None) -> None:
    verdict = arguments(a_request(target=tool, input=given, remit=a_remit(tools=LIMITS)), Facts(target=None))
    if expected is None:
        assert verdict == ALLOW
    else:
        assert isinstance(verdict, Refuse)
        assert verdict.fault.code is Code.TOOL_NOT_ALLOWED
        assert verdict.fault.message == f"the remit of prime allows tool pay only where {expected}"


def test_the_remit_refuses_before_and_after_the_guards_of_the_team() -> None:
    """Nobody is asked about what is refused anyway, and no guard may widen what it rewrites."""
    assert [each for each in guards_of_use((user,)) if each in (arguments, user)] == [arguments, user, arguments]


@given(name_sets, optional(name_sets), optional(name_sets))
def test_tools_that_pass_are_both_the_callees_and_the_callers(
    own: frozenset[str], held: frozenset[str] | None, wanted: frozenset[str] | None
) -> None:
    """X11, O6: by any path."""
    facts = Facts(target=a_card(tools=own), held=a_remit(tools=held), asked_tools=wanted)
    if wanted is not None and tools(a_request(), facts) == ALLOW:
        assert meet(held, wanted) == wanted <= own
