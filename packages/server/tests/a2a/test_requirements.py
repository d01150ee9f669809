"""Every MUST of the A2A specification 1.0 that our server or client has to keep, each with the test that shows it.

What concerns custom bindings, the editing of the specification, or how somebody deploys a server
(https: `certificate` in `[serve]`) is not here.
"""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from checkout import ROOT


class Must(NamedTuple):
    """One line of the specification."""

    section: str
    line: str
    tests: tuple[str, ...]


SERVER, PUSH, CARDS, PEERS = (f"a2a/test_{name}.py" for name in ("server", "push", "cards", "peers"))
GRPC, GRPC_PEERS, SDK = (f"a2a/test_{name}.py" for name in ("grpc", "grpc_peers", "sdk"))
DIALECT, ADDRESSES = "dialects/test_a2a.py", "transports/test_addresses.py"


def must(section: str, line: str, *tests: str) -> Must:
    return Must(section, line, tests)


def at(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{file}::test_{name}" for name in names)


REQUIREMENTS = (
    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────────
    must("3.1.1", "Send Message returns immediately with either task information or a message.",
         *at(SERVER, "whoever_cannot_wait_gets_the_task_at_once_and_looks_again")),
    must("3.1.2", "Send Streaming Message establishes a streaming connection for real-time updates.",
         *at(SERVER, "a_stream_begins_with_the_task_and_ends_with_its_end")),
    must("3.1.2", "A task's stream begins with the Task, followed by status and artifact updates.",
         *at(SERVER, "a_stream_begins_with_the_task_and_ends_with_its_end")),
    must("3.1.2", "The stream closes when the task reaches a terminal state.",
         *at(SERVER, "a_stream_begins_with_the_task_and_ends_with_its_end")),
    must("3.1.2", "The implementation gives immediate feedback on progress and intermediate results.",
         *at(SERVER, "a_stream_begins_with_the_task_and_ends_with_its_end")),
    must("3.1.4", "Without includeArtifacts the artifacts field is omitted entirely.",
         *at(SERVER, "tasks_are_listed_page_by_page_the_last_changed_first")),
    must("3.1.4", "nextPageToken is always present, and empty on the final page.",
         *at(SERVER, "tasks_are_listed_page_by_page_the_last_changed_first")),
    must("3.1.4", "Only tasks visible to the authenticated client are returned.",
         *at(SERVER, "another_users_task_does_not_exist")),
    must("3.1.4", "Pagination is cursor-based.", *at(SERVER, "tasks_are_listed_page_by_page_the_last_changed_first")),
    must("3.1.4", "Tasks are sorted by last update time, the newest first.",
         *at(SERVER, "tasks_are_listed_page_by_page_the_last_changed_first")),
    must("3.1.6", "A subscription's stream terminates when the task reaches a terminal state.",
         *at(SERVER, "all_who_read_along_hear_the_same_in_the_same_order")),
    must("3.1.6", "The first event of a subscription is a Task with its current state.",
         *at(SERVER, "all_who_read_along_hear_the_same_in_the_same_order",
             "subscribing_works_with_get_and_with_post")),
    must("3.1.7", "Creating a configuration establishes a webhook for task updates.",
         *at(PUSH, "a_client_is_told_of_its_task_with_what_it_is_known_by")),
    must("3.1.7", "The configuration persists until task completion or explicit deletion.",
         *at(PUSH, "configurations_are_made_read_listed_and_deleted",
             "another_server_tells_what_one_that_died_has_not",
             "a_task_that_goes_on_after_a_question_is_told_of_again")),
    must("3.1.8", "Getting a configuration returns its webhook URL and settings.",
         *at(PUSH, "configurations_are_made_read_listed_and_deleted")),
    must("3.1.8", "It fails if the configuration does not exist or the client lacks access.",
         *at(PUSH, "configurations_are_made_read_listed_and_deleted"),
         *at(SERVER, "another_users_task_does_not_exist")),
    must("3.1.9", "Listing returns all active configurations of the task.",
         *at(PUSH, "configurations_are_made_read_listed_and_deleted")),
    must("3.1.10", "Deleting removes the configuration permanently.",
         *at(PUSH, "configurations_are_made_read_listed_and_deleted")),
    must("3.1.10", "Deleting is idempotent.", *at(PUSH, "configurations_are_made_read_listed_and_deleted")),
    must("3.2.2", "A blocking send waits until a terminal or interrupted state.",
         *at(SERVER, "a_message_is_answered_with_its_task_at_the_end",
             "a_question_to_the_user_is_answered_in_the_same_task",
             "a_task_that_waits_for_a_person_requires_authorization_until_that_has_agreed")),
    must("3.2.2", "Its response includes the latest task state with all artifacts and status information.",
         *at(SERVER, "a_message_is_answered_with_its_task_at_the_end")),
    must("3.2.2", "With returnImmediately the operation returns after creating the task.",
         *at(SERVER, "whoever_cannot_wait_gets_the_task_at_once_and_looks_again")),
    must("3.2.4", "No more messages of the history are returned than historyLength says.",
         *at(SERVER, "history_is_as_long_as_is_wanted")),
    # ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────
    must("3.3.2", "Requests with invalid or missing credentials are rejected.",
         *at(SERVER, "whoever_proves_nothing_is_challenged_whatever_it_asks")),
    must("3.3.2", "A client that lacks permissions gets an authorization error.",
         *at(SERVER, "whoever_asks_for_many_says_for_whom", "a_client_asks_only_whom_and_for_whom_it_may")),
    must("3.3.2", "The existence of what a client may not access is not revealed.",
         *at(SERVER, "another_users_task_does_not_exist")),
    must("3.3.2", "All input parameters are validated before processing.",
         *at(SERVER, "a_message_that_is_wrong_is_declined_by_field", "a_list_that_cannot_be_made_is_declined_by_field"),
         *at(DIALECT, "whatever_a_client_sends_is_understood_or_declined")),
    must("3.3.2", "What does not exist, or is not accessible, is not found.",
         *at(SERVER, "another_users_task_does_not_exist")),
    must("3.3.2", "Every error conveys a code and a message; every detail has an @type.",
         *at(DIALECT, "an_error_of_a2a_names_its_reason_in_its_domain", "a_fault_that_one_hub_tells_another_hears"),
         *at(SERVER, "errors_over_http_are_those_of_google_rpc")),
    must("3.3.4", "Without push notifications their operations give PushNotificationNotSupportedError.",
         *at(PUSH, "where_nobody_is_notified_everything_about_it_is_declined")),
    must("3.3.4", "Without an extended card, getting it gives UnsupportedOperationError.",
         *at(SERVER, "there_is_no_other_card_for_those_who_are_known")),
    must("3.3.4", "Without a required extension a request gives ExtensionSupportRequiredError.",
         *at(SERVER, "an_extension_that_is_required_has_to_be_used")),
    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────────────────
    must("3.4.1", "A generated contextId is in the response.",
         *at(SERVER, "a_message_is_answered_with_its_task_at_the_end")),
    must("3.4.1", "A contextId that cannot be accepted is an error, and no other one is generated.",
         *at(SERVER, "another_users_context_is_declined_and_no_other_is_made_up")),
    must("3.4.2", "Each new task has a unique id, which the Task returned holds.",
         *at(SERVER, "tasks_are_listed_page_by_page_the_last_changed_first")),
    must("3.4.2", "A taskId that names no existing task gives TaskNotFoundError.",
         *at(SERVER, "another_users_task_does_not_exist")),
    must("3.4.3", "The contextId is inferred from the task if only taskId is given.",
         *at(SERVER, "a_question_to_the_user_is_answered_in_the_same_task")),
    must("3.4.3", "Mismatching contextId and taskId are rejected.",
         *at(SERVER, "a_task_and_a_context_that_do_not_belong_together_are_declined")),
    must("3.5.2", "Events are delivered in the order in which they were generated.",
         *at(DIALECT, "a_runs_records_are_events_in_their_order")),
    must("3.5.2", "Events are broadcast to all active streams, the same in the same order.",
         *at(SERVER, "all_who_read_along_hear_the_same_in_the_same_order")),
    must("3.5.2", "Closing one stream affects no other stream of the task.",
         *at(SERVER, "all_who_read_along_hear_the_same_in_the_same_order",
             "whoever_hangs_up_does_not_stop_the_work")),
    # ── versions and extensions ───────────────────────────────────────────────────────────────────────────────────────
    must("3.6", "Patch versions are not considered.",
         *at(SERVER, "a_patch_makes_no_difference_and_the_version_may_be_a_parameter"),
         *at(DIALECT, "only_the_first_two_numbers_of_a_version_count")),
    must("3.6.1", "A client sends A2A-Version with each request.",
         *at(PEERS, "nothing_of_ours_is_told_to_who_does_not_know_the_extension")),
    must("3.6.2", "A version that is not supported gives VersionNotSupportedError.",
         *at(SERVER, "another_version_is_not_spoken")),
    must("3.6.2", "An empty version is 0.3.", *at(SERVER, "another_version_is_not_spoken")),
    must("4.6.3", "A client's version of an extension is never taken for an earlier one.",
         *at(SERVER, "an_extension_that_nobody_knows_is_ignored_and_ours_is_echoed")),
    # ── notifications ─────────────────────────────────────────────────────────────────────────────────────────────────
    must("4.3.3", "Notifications carry the credentials of the configuration in their headers.",
         *at(PUSH, "a_client_is_told_of_its_task_with_what_it_is_known_by")),
    must("4.3.3", "Delivery is attempted at least once for each webhook.",
         *at(PUSH, "what_does_not_arrive_is_sent_again_and_a_redirect_is_not_followed",
             "another_server_tells_what_one_that_died_has_not", "a_task_that_has_ended_is_told_of_once")),
    must("13.2", "Credentials are included in webhook requests as configured.",
         *at(PUSH, "a_client_is_told_of_its_task_with_what_it_is_known_by")),
    # ── bindings ──────────────────────────────────────────────────────────────────────────────────────────────────────
    must("5.1", "All bindings have the same operations, behaviour, errors and authentication.",
         *at(SERVER, "a_message_is_answered_with_its_task_at_the_end",
             "whoever_proves_nothing_is_challenged_whatever_it_asks", "another_users_task_does_not_exist"),
         *at(DIALECT, "a_fault_that_one_hub_tells_another_hears")),
    must("5.2", "All supported protocols are declared in the card.",
         *at(CARDS, "a_card_says_what_an_agent_can_do_and_how_to_ask_it")),
    must("5.4", "A2A's errors are mapped to the codes and statuses of each binding.",
         *at(DIALECT, "errors_have_the_codes_and_statuses_of_the_sdk")),
    must("5.5", "Fields are camelCase, and enums their names.",
         *at(SERVER, "a_message_is_answered_with_its_task_at_the_end",
             "a_stream_begins_with_the_task_and_ends_with_its_end"),
         *at(DIALECT, "states_and_their_order_are_those_of_the_sdk",
             "whoever_knows_no_extension_is_told_how_it_ended_all_the_same")),
    must("5.6.1", "Timestamps are ISO 8601 in UTC, without any other zone.",
         *at(SERVER, "times_are_written_in_utc_with_milliseconds"),
         *at(DIALECT, "a_time_comes_back_as_it_was")),
    must("5.7", "Required fields are present and set; required arrays have an element.",
         *at(CARDS, "a_card_has_every_field_that_is_required_and_nothing_that_is_unknown"),
         *at(SERVER, "a_message_that_is_wrong_is_declined_by_field")),
    must("9.2, 11.2", "Service parameters are HTTP headers.",
         *at(SERVER, "an_extension_that_is_required_has_to_be_used", "another_version_is_not_spoken")),
    must("9.3", "Requests of JSON-RPC follow its format.", *at(SERVER, "what_is_no_call_of_json_rpc_has_its_code")),
    must("9.5, 11.6", "An error of A2A has an ErrorInfo with @type, reason and domain.",
         *at(DIALECT, "an_error_of_a2a_names_its_reason_in_its_domain"),
         *at(SERVER, "errors_over_http_are_those_of_google_rpc")),
    must("10.2", "Service parameters are metadata of gRPC, and are read from there.",
         *at(GRPC, "errors_have_the_status_of_the_specification_and_details",
             "the_extension_is_confirmed_and_can_be_required"),
         *at(GRPC_PEERS, "a_call_has_the_token_the_version_the_trace_the_tenant_and_the_deadline")),
    must("10.6", "An error of A2A over gRPC has an ErrorInfo in the details of its status.",
         *at(GRPC, "errors_have_the_status_of_the_specification_and_details"),
         *at(SDK, "errors_are_those_that_the_sdk_knows")),
    must("11.5", "Without a body, parameters stand in the path or in a camelCase query.",
         *at(SERVER, "tasks_are_listed_by_context_state_and_time", "history_is_as_long_as_is_wanted")),
    # ── who may what ──────────────────────────────────────────────────────────────────────────────────────────────────
    must("7.4", "Every incoming request is authenticated.",
         *at(SERVER, "whoever_proves_nothing_is_challenged_whatever_it_asks")),
    must("7.6.1", "An agent that needs authorization tracks it as a Task in TASK_STATE_AUTH_REQUIRED, with a message.",
         *at(SERVER, "a_task_that_waits_for_a_person_requires_authorization_until_that_has_agreed")),
    must("7.6.1", "The authorization is received out of band.",
         *at(SERVER, "a_task_that_waits_for_a_person_requires_authorization_until_that_has_agreed")),
    must("13.1", "Every operation checks authorization, and is scoped to it, also without filters.",
         *at(SERVER, "another_users_task_does_not_exist", "whoever_proves_nothing_is_challenged_whatever_it_asks")),
    must("13.3", "The extended card requires authentication.",
         *at(SERVER, "whoever_proves_nothing_is_challenged_whatever_it_asks")),
    must("13.4", "Credentials are treated as secrets, and logs hold none.",
         *at(PUSH, "configurations_are_made_read_listed_and_deleted",
             "nobody_is_told_at_an_address_within_our_network"),
         *at(SERVER, "an_agent_that_fails_fails_its_task_and_tells_no_secret"),
         *at(ADDRESSES, "an_address_that_is_unfit_is_refused_with_the_reason_and_without_its_password")),
    must("14.1", "Content is validated before it is processed.",
         *at(SERVER, "a_message_that_is_wrong_is_declined_by_field"),
         *at(DIALECT, "whatever_a_client_sends_is_understood_or_declined")),
    must("14.1", "File references are validated to prevent request forgery.",
         *at("a2a/test_files.py", "raw_content_and_urls_of_a_client_are_files_and_come_back_as_artifacts")),
    # ── cards ─────────────────────────────────────────────────────────────────────────────────────────────────────────
    must("8.1", "A server makes a card available.",
         *at(CARDS, "a_card_is_public_and_the_agents_that_are_not_served_have_none")),
    must("8.3", "Each interface declares its binding and URL accurately.",
         *at(CARDS, "a_card_says_what_an_agent_can_do_and_how_to_ask_it",
             "a_card_that_a_client_has_is_not_sent_again")),
    must("8.3.2", "A client selects the first interface that it supports, and uses its URL.",
         *at(PEERS, "the_first_interface_that_is_spoken_is_used")),
    must("8.4.1", "What is signed is canonical (RFC 8785), without defaults, and without the signatures.",
         *at(CARDS, "a_card_is_signed_with_the_hubs_key_and_the_sdk_verifies_that",
             "a_card_has_every_field_that_is_required_and_nothing_that_is_unknown"),
         *at(DIALECT, "a_signature_holds_for_the_card_that_was_signed_and_no_other")),
    must("8.4.2", "The protected header has alg, typ and kid.",
         *at(CARDS, "a_card_is_signed_with_the_hubs_key_and_the_sdk_verifies_that")),
    must("8.4.3", "A client verifies a signature over the canonical card, with a key that it trusts.",
         *at(PEERS, "a_card_has_to_be_signed_where_a_key_is_named_for_it"),
         *at(DIALECT, "a_signature_holds_for_the_card_that_was_signed_and_no_other")),
    must("14.3", "/.well-known/agent-card.json returns a card.",
         *at(CARDS, "a_card_is_public_and_the_agents_that_are_not_served_have_none")),
)  # fmt: skip


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda each: f"{each.section} {each.line[:60]}")
def test_a_requirement_has_a_test_that_is_there(requirement: Must) -> None:
    assert requirement.tests
    for name in requirement.tests:
        file, _, function = name.partition("::")
        assert function in functions(ROOT / "packages/server/tests" / file), name


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
