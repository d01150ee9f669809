"""Decisions about a request and its answers: pure functions of values.

Guards judge a request and do not know each other. The other modules decide what a callee may see (`context`), who is
asked (`routing`), when enough answers have arrived (`aggregate`), and what a request of a stranger becomes here
(`reception`). Time, counters and cards come in as arguments.
"""
