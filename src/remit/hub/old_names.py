"""Old names of a hub's methods, which still work with a warning."""

from remit.protocol.deprecation import Renamed


class OldHubNames:
    """The old names, as a base of the hub."""

    asked = Renamed("request_of")
    begin_counted = Renamed("begin_peer_call")
    counted = Renamed("peer_call_ended")
    figures = Renamed("metrics")
    is_elsewhere = Renamed("is_remote")
    is_here = Renamed("is_running")
    isolate_with = Renamed("configure_isolation")
    pass_on = Renamed("forward_headers")
    standing = Renamed("agent_status")
    take_up_only = Renamed("resume_only")
    tell_runs = Renamed("notify_runs")
