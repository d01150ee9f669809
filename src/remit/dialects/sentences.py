"""The sentences by which the documents identify errors, where they have no codes."""

import re

from remit.dialects.outcome import sentence
from remit.protocol.errors import Code, Fault, fault

# Errors are short, and text further down is not the document's sentence.
_READ = 200

_CODES = (
    # employees
    (re.compile(r"Delegation depth limit reached|Max delegation depth exceeded"), Code.MAX_DEPTH_EXCEEDED),
    (re.compile(r"Too many concurrent delegates"), Code.FAN_OUT_EXCEEDED),
    (re.compile(r"Cycle detected"), Code.CYCLE_DETECTED),
    (re.compile(r"Delegation timeout after [0-9]+ ?ms"), Code.TIMEOUT),
    (re.compile(r"Estimated tokens \([0-9]+\) exceeds budget"), Code.TOKEN_BUDGET_EXCEEDED),
    (re.compile(r"User ID mismatch"), Code.USER_MISMATCH),
    (re.compile(r"Employee \S+ not authorized to use tool"), Code.TOOL_NOT_ALLOWED),
    # sub-agents
    (re.compile(r"Agent '[^']*' is not allowed to call other agents"), Code.PERMISSION_DENIED),
    (re.compile(r"[Aa]gent '[^']*' not found"), Code.AGENT_NOT_FOUND),
    (re.compile(r"Recursive sub-agent calls detected"), Code.LOOP_DETECTED),
)

# Sentences that end with an instruction, so that no more advice is needed.
_ADVISES = re.compile(r"Return results to parent|Choose (?:the )?top [0-9]+ most relevant|Simplify task")

# Where our sentences differ from those of the employees.
_THEIRS = (
    (re.compile(r"Choose the top ([0-9]+) most relevant agents"), r"Choose top \1 most relevant employees"),
    (
        re.compile(r"^Cycle detected: (\S+) -> (\S+) with the same objective is already in progress or done"),
        r"Cycle detected: \1 → \2 with same objective already in progress",
    ),
    (re.compile(r"^(?:Agent )?(\S+ not authorized to use tool)s? "), r"Employee \1 "),
)
_DEPTHS = re.compile(r"(?<=Delegation depth limit reached )\(([0-9]{1,15})/([0-9]{1,15})\)")


def in_sentences(why: Fault) -> str:
    """Return the text of a fault for an employee."""
    words = _counted(sentence(why), 1)
    for ours, theirs in _THEIRS:
        words = ours.sub(theirs, words, count=1)
    return words


# Where our sentences differ from those of the librarians.
_REASONS = (
    (re.compile(r"^Delegation depth limit reached .*", re.DOTALL), "Maximum delegation depth exceeded"),
    (re.compile(r"^Delegation chain too long \(.*", re.DOTALL), "Delegation chain too long"),
    (re.compile(r"^\S+ is already in the chain: "), "Delegation loop detected: "),
)


def in_reasons(why: Fault) -> str:
    """Return the text of a fault for a librarian."""
    words = sentence(why)
    for ours, theirs in _REASONS:
        words = ours.sub(theirs, words, count=1)
    return words


def fault_of(error: str) -> Fault:
    """Return the fault of a document's sentence; an unknown sentence is a failure."""
    begins = error[:_READ]
    code = next((code for pattern, code in _CODES if pattern.search(begins)), Code.DELEGATION_FAILED)
    return fault(code, _counted(error, -1), suggestion="" if _ADVISES.search(begins) else None)


def _counted(words: str, more: int) -> str:
    """Return a sentence about depth with its numbers as the other side counts them: its limit is exclusive."""
    return _DEPTHS.sub(lambda found: "({}/{})".format(*(max(0, int(each) + more) for each in found.groups())), words)
