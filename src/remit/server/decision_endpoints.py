"""The endpoints about decisions: one delegation explained, approvals, and the policy of the team."""

from collections.abc import Iterator

from remit.server.approval_endpoints import ApprovalEndpoints
from remit.server.delegations import Delegations
from remit.server.detail_endpoints import DetailEndpoints
from remit.server.policy_endpoints import PolicyEndpoints
from remit.server.refusals import Endpoint
from remit.server.team_policy import TeamPolicy


class DecisionEndpoints:
    """Their routes."""

    def __init__(self, delegations: Delegations, policy: TeamPolicy) -> None:
        self._details = DetailEndpoints(delegations, policy)
        self._approvals = ApprovalEndpoints(delegations, policy)
        self._policy = PolicyEndpoints(delegations, policy)

    def routes(self) -> Iterator[tuple[str, Endpoint, str]]:
        """Yield the pattern of each path, its endpoint and its method."""
        yield "/v1/runs/{run}/delegations/{path}", self._details.detail, "GET"
        yield "/v1/approvals", self._approvals.approvals, "GET"
        yield "/v1/approvals", self._approvals.answer_several, "POST"
        yield "/v1/approvals/{id}", self._approvals.approval, "GET"
        yield "/v1/approvals/{id}", self._approvals.answer, "POST"
        yield "/v1/policy/explain", self._policy.explain, "POST"
        yield "/v1/policy/guards", self._policy.guards, "GET"
        yield "/v1/team", self._policy.team, "GET"
