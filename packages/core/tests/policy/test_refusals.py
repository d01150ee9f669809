"""What the guards say when they refuse, in the words that callers read."""

from collections.abc import Callable
from typing import Any

from remit.policy.guards import (
    breaker,
    chain,
    cycle,
    deadline,
    delegations,
    depth,
    fan_out,
    known_target,
    loop,
    nesting,
    permission,
    rate,
    record,
    tokens,
    tool,
    tools,
    user,
    version,
)
from remit.policy.limits import Limits
from remit.policy.verdict import Facts, Guard, Refuse
from remit.protocol.card import Capability
from remit.protocol.envelope import NOBODY, Handoff, Request, Source
from remit.protocol.errors import RemitError
from samples import a_card, a_remit, a_request

CODER = a_card(tools=frozenset({"read", "write"}))
PRIME = a_card(name="prime", may_call=frozenset({"byte"}))
MUTED = a_card(name="prime", may_call=frozenset({"tag"}), allow_sub_agent_calls=False)
FREE = a_card(name="prime", may_call=frozenset({"*"}))
OFFERING = a_card(capabilities=tuple(Capability(code=code) for code in ("TAG_CATEGORIZE", "TAG_LIST")))
SHARED = Handoff(references=tuple(Source(owner_scope=scope, source_id=f"doc-{scope}") for scope in ("u-1", "u-2")))
FEW = Limits(max_delegations=10, max_agent_delegations=4, max_record_bytes=1_000)
LONG = a_request(remit=a_remit(chain=tuple(f"a{number}@hub" for number in range(11))))
DEAR = a_request(input="Which of these are deductible? " * 100, remit=a_remit(tokens=100))
READS = a_remit(tools=frozenset({"read"}))
LISTED = a_request(capability="ANL_NPV")


def facts(**changes: Any) -> Facts:
    known: dict[str, Any] = {"target": a_card(), "address": "tag@hub"} | changes
    return Facts(**known)


def name_set(*names: str) -> frozenset[str]:
    return frozenset(names)


REFUSED: list[tuple[Guard, Request, Facts]] = [
    (version, a_request(version="0.9"), facts(versions=("1.1", "1.2", "1.3"))),
    (known_target, a_request(), facts(target=None, agents=("tags", "byte"))),
    (known_target, a_request(), facts(target=None, agents=("ledger", "byte"))),
    (known_target, a_request(), facts(target=None)),
    (known_target, a_request(target=NOBODY, capability="ANL_NPV"), facts(target=None, agents=("tag",))),
    (known_target, LISTED, facts(target=OFFERING)),
    (known_target, LISTED, facts()),
    (permission, a_request(), facts(caller=PRIME, held=a_remit())),
    (permission, a_request(), facts(caller=MUTED, held=a_remit())),
    (permission, a_request(), facts(caller=FREE, held=a_remit(targets=name_set("byte")))),
    (user, a_request(session="s-1"), facts(session_user="u-2", session_agent="tag")),
    (user, a_request(session="s-1"), facts(session_user="u-1", session_agent="byte")),
    (user, a_request(handoff=SHARED), facts()),
    (depth, a_request(remit=a_remit(depth=2, max_depth=1)), facts()),
    (depth, a_request(remit=a_remit(depth=6, max_depth=99)), facts()),
    (chain, LONG, facts()),
    (loop, a_request(remit=a_remit(chain=("prime@hub", "tag@hub", "byte@hub"))), facts()),
    (cycle, a_request(), facts(repeated=True)),
    (nesting, a_request(), facts(held=a_remit(may_delegate=False))),
    (fan_out, a_request(), facts(held=a_remit(), at_once=4)),
    (delegations, a_request(), facts(limits=FEW, delegations=11, agent_delegations=1)),
    (delegations, a_request(), facts(limits=FEW, delegations=11, agent_delegations=5)),
    (record, a_request(), facts(limits=FEW, record_bytes=12_345)),
    (deadline, a_request(remit=a_remit(time_ms=19)), facts()),
    (tools, a_request(), facts(target=CODER, asked_tools=name_set("read", "shell", "browse"))),
    (tools, a_request(), facts(target=CODER, held=READS, asked_tools=name_set("read", "write"))),
    (tokens, DEAR, facts()),
    (tokens, a_request(remit=a_remit(tokens=0)), facts()),
    (tokens, a_request(), facts(overrun=True)),
    (rate, a_request(), facts(rate_wait_ms=1_500)),
    (breaker, a_request(), facts(breaker_wait_ms=1_500)),
    (tool, a_request(target="pay", act="tool"), facts(target=None)),
]


def test_what_the_guards_say(transcript: Callable[[str], None]) -> None:
    lines: list[str] = []
    for guard, request, known in REFUSED:
        verdict = guard(request, known)
        assert isinstance(verdict, Refuse), guard
        lines.append(f"{verdict.fault.retry_after_ms or ''} {RemitError(verdict.fault)}".strip())
    transcript("\n\n".join(lines) + "\n")
