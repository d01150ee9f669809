"""The metrics of several workers make one page."""

from remit_server.figures_endpoints import combined

FIRST = b"""\
# HELP remit_ready Whether.
# TYPE remit_ready gauge
remit_ready 1
# HELP remit_delegations_total Ended.
# TYPE remit_delegations_total counter
remit_delegations_total{agent="a b",status="success"} 3
# HELP remit_breaker Breaker.
# TYPE remit_breaker gauge
remit_breaker{agent="a b"} 0
"""
SECOND = b"""\
# HELP remit_ready Whether.
# TYPE remit_ready gauge
remit_ready 0
# HELP remit_delegations_total Ended.
# TYPE remit_delegations_total counter
remit_delegations_total{agent="a b",status="success"} 4
remit_delegations_total{agent="c",status="failed"} 0.5
# HELP remit_breaker Breaker.
# TYPE remit_breaker gauge
remit_breaker{agent="a b"} 2
"""


def test_counters_are_added_and_the_worst_of_the_others_counts() -> None:
    assert combined([FIRST, SECOND]).decode().splitlines() == [
        "# HELP remit_ready Whether.",
        "# TYPE remit_ready gauge",
        "remit_ready 0",
        "# HELP remit_delegations_total Ended.",
        "# TYPE remit_delegations_total counter",
        'remit_delegations_total{agent="a b",status="success"} 7',
        'remit_delegations_total{agent="c",status="failed"} 0.5',
        "# HELP remit_breaker Breaker.",
        "# TYPE remit_breaker gauge",
        'remit_breaker{agent="a b"} 2',
    ]


def test_one_page_stays_as_it_is() -> None:
    assert combined([FIRST]) == FIRST
