// Made by `npm run types` in web/ from the OpenAPI document. Do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AnswerRequest
         * @description Answer a permission request of the local agent.
         */
        AnswerRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /**
             * @description The id of one of its choices; None: no.
             * @default null
             */
            choice: string | null;
            question: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * ApproveRequest
         * @description Send a draft, optionally edited.
         */
        ApproveRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            draft: string;
            /** @default null */
            text: string | null;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * AuthorView
         * @description An agent or a person.
         */
        AuthorView: {
            /** @description The profile of a local agent, the shared name of a remote one, or the name of a person. */
            name: string;
            /** @enum {unknown} */
            role: "local_agent" | "remote_agent" | "user";
            /** @description The client that a person used; empty for agents. */
            via: string;
        };
        /**
         * ChoiceView
         * @description A possible answer to a permission request.
         */
        ChoiceView: {
            id: string;
            /** @description `allow_once`, `allow_always`, `reject_once` or `reject_always`. */
            kind: string;
            name: string;
        };
        /**
         * Code
         * @description What went wrong, for programs.
         * @enum {unknown}
         */
        Code: "AGENT_NOT_FOUND" | "APPROVAL_DECLINED" | "CANCELLED" | "CAPABILITY_NOT_FOUND" | "CHAIN_TOO_LONG" | "CREDENTIAL_EXPIRED" | "CREDENTIAL_INVALID" | "CYCLE_DETECTED" | "DATA_MISSING_REQUIRED_INPUT" | "DELEGATION_FAILED" | "DELEGATION_UNAVAILABLE" | "DUPLICATE_REQUEST" | "FAN_OUT_EXCEEDED" | "INPUT_VALIDATION_FAILED" | "LOOP_DETECTED" | "MALFORMED_ENVELOPE" | "MAX_DELEGATIONS_EXCEEDED" | "MAX_DEPTH_EXCEEDED" | "NESTED_CALLS_FORBIDDEN" | "NOT_FOUND" | "NOT_RECORDED" | "OUTCOME_UNKNOWN" | "OVERLOADED" | "PATH_NOT_ALLOWED" | "PERMISSION_DENIED" | "RATE_LIMITED" | "RECORD_LIMIT_EXCEEDED" | "RESULT_VALIDATION_FAILED" | "STATE_CONFLICT" | "STORE_UNAVAILABLE" | "TEAM_INVALID" | "TIMEOUT" | "TOKEN_BUDGET_EXCEEDED" | "TOOL_NOT_ALLOWED" | "TOO_LARGE" | "UNAUTHENTICATED" | "UNSUPPORTED_MEDIA_TYPE" | "USER_HAS_OPEN_RUN" | "USER_MISMATCH" | "VERSION_UNSUPPORTED";
        /**
         * ConnectionView
         * @description The connection of this device to its gateway.
         */
        ConnectionView: {
            /** @description When it got into this state. */
            since_ms: number;
            /** @enum {unknown} */
            state: "connected" | "connecting" | "ended" | "silent" | "waiting";
            /** @description The reason, in a sentence for people; may be empty. */
            why: string;
        };
        /**
         * ConsoleInfo
         * @description What this server offers to a browser.
         */
        ConsoleInfo: {
            /**
             * @description The currency of all costs, which are estimates.
             * @default USD
             */
            currency: string;
            /** @description The value of the header `x-remit-page-key` that every request of the page needs; empty but at its sign-in. */
            page_key: string;
            team: string;
            version: string;
            /** @description The parts that are served here: `operator`, `chat`. */
            views: string[];
            who: components["schemas"]["ConsoleUser"];
        };
        /**
         * ConsoleUser
         * @description The client of the server that a browser is signed in as.
         */
        ConsoleUser: {
            /** @description Whether it may answer questions to a person. */
            may_approve: boolean;
            name: string;
            permissions: string[];
        };
        /**
         * Counts
         * @description How many of each there are on this device.
         */
        Counts: {
            devices: number;
            /** @description Drafts that wait for approval. */
            drafts: number;
            open_runs: number;
            profiles: number;
            /** @description Permission requests of local agents that wait for an answer. */
            questions: number;
            runs: number;
            unread: number;
        };
        /**
         * DeliveryView
         * @description How far a message has come.
         */
        DeliveryView: {
            since_ms: number;
            /** @enum {unknown} */
            state: "answered" | "delivered" | "failed" | "read" | "taken" | "waiting";
            /** @description Why it has failed; else empty. */
            why: string;
        };
        /**
         * DeviceList
         * @description The known devices, by name.
         */
        DeviceList: {
            devices: components["schemas"]["DeviceView"][];
        };
        /**
         * DevicePolicies
         * @description The policies of all known devices.
         */
        DevicePolicies: {
            policies: components["schemas"]["DevicePolicy"][];
        };
        /**
         * DevicePolicy
         * @description What one device may do here by grants, and whether the devices may connect.
         */
        DevicePolicy: {
            agents: string[];
            allowed: boolean;
            device: string;
            name: string;
            /** @description Whether it has the same owner: then it may ask all agents, and all profiles may ask it. */
            own: boolean;
            profiles: string[];
            revoked: boolean;
            shared: boolean;
            verified: boolean;
        };
        /**
         * DeviceView
         * @description A known device.
         */
        DeviceView: {
            /** @description Whether it may contact this device on its own. */
            allowed: boolean;
            /** @description The groups that it is in; a group can be the `device` of a new run. */
            groups: string[];
            id: string;
            /** @description When something was heard of it last; None: not known. */
            last_heard_ms: number | null;
            name: string;
            /** @description The agents that it shares; None: it has not said yet. */
            offers: components["schemas"]["OfferView"][] | null;
            /** @description Whether it is marked as another device of this owner. */
            own: boolean;
            /** @description Whether it is connected to its gateway; None: not known. */
            present: boolean | null;
            revoked: boolean;
            /** @description Whether it says that its owner has revoked this device. */
            revoked_there: boolean;
            /** @description Whether it shares an agent with this device, as far as this device knows: "shared with me". */
            shared: boolean;
            /** @description Whether both owners compared codes. */
            verified: boolean;
        };
        /**
         * DraftPart
         * @description The text of a draft so far, while an agent writes it.
         */
        DraftPart: {
            /** @description The id that the draft will have. */
            draft: string;
            run: string;
            text: string;
        };
        /**
         * DraftView
         * @description A draft that waits for approval; after the end of the run, one that was not sent.
         */
        DraftView: {
            /** @description The id that an answer must name, so that it cannot mean another draft. */
            id: string;
            reviews: components["schemas"]["ReviewView"][];
            text: string;
            took_ms: number;
        };
        /**
         * EntryList
         * @description A page of the entries of a run: messages and rejected drafts, the oldest first.
         */
        EntryList: {
            entries: components["schemas"]["EntryView"][];
            /** @description The `before` of the page with earlier entries; None: there are none. */
            next: string | null;
        };
        /**
         * EntryView
         * @description One entry of a run: a message, or a rejected draft.
         */
        EntryView: {
            approved_by: components["schemas"]["AuthorView"] | null;
            at_ms: number;
            /** @description How far it has come; None for replies, rejected drafts, and messages whose state is not known. */
            delivery: components["schemas"]["DeliveryView"] | null;
            edited_by: components["schemas"]["AuthorView"] | null;
            /** @description Why it will never get a reply; empty if it may. */
            failed: string;
            files: components["schemas"]["FileView"][];
            id: string;
            /** @description How it was released, or that it was not; None for messages of the remote agent. */
            label: ("approved" | "auto_sent" | "edited" | "yours") | "rejected" | null;
            /** @description The draft of the agent, if a person edited it; else empty. */
            original: string;
            /** @description Why it was rejected, as the person said it; may be empty. */
            reason: string;
            rejected_by: components["schemas"]["AuthorView"] | null;
            /** @description The rules that asked for a review. */
            reviews: components["schemas"]["ReviewView"][];
            /** @enum {unknown} */
            role: "local_agent" | "remote_agent" | "user";
            sent: boolean;
            text: string;
            took_ms: number;
            turn: number;
            written_by: components["schemas"]["AuthorView"];
        };
        /**
         * FailureBody
         * @description Why a request did not become a delegation.
         */
        FailureBody: {
            fault: components["schemas"]["Fault"];
            /** @description The same for the user who asked, without names, codes and limits. */
            summary: string;
        };
        /**
         * Fault
         * @description An error as a value: it travels in a response and is never raised between agents.
         */
        Fault: {
            /** @description The error code. */
            code: components["schemas"]["Code"];
            /**
             * @description The peer's own code, where it has one (`BENCHMARK_SOURCE_CLOSED`).
             * @default null
             */
            foreign: string | null;
            /** @description What happened, in a sentence. */
            message: string;
            /**
             * @description Each invalid field.
             * @default []
             */
            problems: components["schemas"]["Problem"][];
            /**
             * @description Whether trying again can help.
             * @default false
             */
            recoverable: boolean;
            /**
             * @description When to try again, in milliseconds from now.
             * @default null
             */
            retry_after_ms: number | null;
            /**
             * @description What to do.
             * @default
             */
            suggestion: string;
        };
        /**
         * FileList
         * @description The files that the next message will carry, and those of the messages before, oldest first.
         */
        FileList: {
            attached: components["schemas"]["FileView"][];
            received: components["schemas"]["FileView"][];
            sent: components["schemas"]["FileView"][];
        };
        /**
         * FileView
         * @description A file of a run.
         */
        FileView: {
            /** @description Empty if it was refused. */
            id: string;
            media_type: string;
            name: string;
            /** @description Why it was not taken from the other device; empty if it was. */
            refused: string;
            size: number;
        };
        /**
         * GrantsWanted
         * @description All grants of a device: the shared agents that it may ask, and the profiles that may ask it.
         */
        GrantsWanted: {
            agents: string[];
            profiles: string[];
        };
        /**
         * HandBackRequest
         * @description The agent speaks next.
         */
        HandBackRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * LimitsView
         * @description All limits of a run, and what is used of them.
         */
        LimitsView: {
            active_ms: components["schemas"]["Quantity"];
            /** @description Messages of the profile, in all of its runs, that wait for a reply. */
            calls: components["schemas"]["Quantity"];
            failures: components["schemas"]["Quantity"];
            rate: components["schemas"]["RateView"];
            tokens: components["schemas"]["Quantity"];
            turns: components["schemas"]["Quantity"];
        };
        /**
         * OfferView
         * @description An agent that another device shares with this one.
         */
        OfferView: {
            description: string;
            /** @description The name under which it is shared: the `agent` of a run. */
            name: string;
        };
        /**
         * OneTimeLink
         * @description A link that signs in one browser, once.
         */
        OneTimeLink: {
            expires_in_ms: number;
            url: string;
        };
        /**
         * PairingStart
         * @description What the other device may ask here, and which profiles may ask it; without a *code* a new one is made.
         */
        PairingStart: {
            /** @default [] */
            agents: string[];
            /** @default null */
            code: string | null;
            /**
             * @description Whether the other device has the same owner: then it may ask all agents, and all profiles may ask it.
             * @default false
             */
            own: boolean;
            /** @default [] */
            profiles: string[];
        };
        /**
         * PairingView
         * @description The state of a pairing. The code, its link and its QR code (SVG) are there only while it waits.
         */
        PairingView: {
            /** @default  */
            code: string;
            /** @default  */
            device: string;
            /** @default  */
            device_name: string;
            /** @default  */
            error: string;
            id: string;
            /** @default false */
            is_confirmed: boolean;
            /** @default  */
            link: string;
            /** @default  */
            message: string;
            /** @default  */
            qr_svg: string;
            /** @enum {unknown} */
            state: "cancelled" | "failed" | "joining" | "paired" | "starting" | "waiting";
            /** @default  */
            suggestion: string;
            /** @default  */
            words: string;
        };
        /**
         * PauseRequest
         * @description Send nothing until the run is resumed.
         */
        PauseRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * Problem
         * @description One invalid field: its place and what was expected there.
         */
        Problem: {
            /** @description What is wrong with it. */
            message: string;
            /** @description The field, as a dotted path. */
            path: string;
        };
        /**
         * Profiles
         * @description All local agents.
         */
        Profiles: {
            profiles: components["schemas"]["ProfileView"][];
        };
        /**
         * ProfileView
         * @description A local agent, and what it may do with shared agents.
         */
        ProfileView: {
            /** @description Whether it may work with shared agents at all. */
            allowed: boolean;
            /** @description The ids of the devices that it may work with. */
            devices: string[];
            id: string;
            max_concurrent: number;
            max_duration_ms: number;
            max_failures: number;
            max_tokens: number | null;
            max_turns: number;
            /**
             * @description The default mode of its runs.
             * @enum {unknown}
             */
            mode: "full_auto" | "manual" | "semi_auto";
            /** @description The rules that require approval of a draft in `semi_auto`. */
            rules: string[];
        };
        /**
         * Quantity
         * @description A limit, and what is used of it.
         */
        Quantity: {
            /** @description None: there is no limit. */
            most: number | null;
            used: number;
        };
        /**
         * QuestionView
         * @description A permission request of the local agent, in its words.
         */
        QuestionView: {
            choices: components["schemas"]["ChoiceView"][];
            details: string;
            id: string;
            /** @description The kind of tool, as the agent says; may be empty. */
            kind: string;
            title: string;
        };
        /**
         * RateView
         * @description How many messages the profile may send to the device in a time.
         */
        RateView: {
            /** @description When the current window ends and counting starts anew; None: no window is open. */
            ends_ms: number | null;
            most: number;
            used: number;
            /** @description The time in which the messages are counted. */
            window_ms: number;
        };
        /**
         * ReadRequest
         * @description The user has read the run up to an entry. This is no step of the run, and possible at any time.
         */
        ReadRequest: {
            /** @description The id of the entry. */
            entry: string;
        };
        /**
         * RejectRequest
         * @description Do not send a draft; the agent gets the reason and drafts again.
         */
        RejectRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            draft: string;
            /** @default  */
            reason: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * ResumeRequest
         * @description Continue, or try again after an error.
         */
        ResumeRequest: {
            /**
             * @description For a run that was started without naming the agent, before it was known what the device shares.
             * @default null
             */
            agent: string | null;
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * ReviewView
         * @description A rule that required a review, and why.
         */
        ReviewView: {
            rule: string;
            why: string;
        };
        /**
         * SayRequest
         * @description A message of the person who has taken over.
         */
        SayRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            text: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * SessionState
         * @description The state of a run.
         * @enum {unknown}
         */
        SessionState: "completed" | "error" | "idle" | "paused" | "planning" | "processing_remote" | "ready_to_send" | "stopped" | "waiting_local" | "waiting_remote";
        /**
         * SetModeRequest
         * @description Change the mode: who sees drafts first.
         */
        SetModeRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /** @enum {unknown} */
            mode: "full_auto" | "manual" | "semi_auto";
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * SetObjectiveRequest
         * @description Change the objective.
         */
        SetObjectiveRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            objective: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * SharedAgentView
         * @description An agent that this device shares.
         */
        SharedAgentView: {
            description: string;
            /** @description The ids of the devices that may call it. */
            devices: string[];
            /** @description The name that other devices use. */
            name: string;
        };
        /**
         * SharedRunLine
         * @description A run in one line.
         */
        SharedRunLine: {
            /** @description The name under which the device shares the other agent; empty: the only one that it shares. */
            agent: string;
            /** @description When its newest message was sent or arrived; None: there is none. */
            at_ms: number | null;
            device: string;
            ended: ("done" | "max_duration_ms" | "max_failures" | "max_tokens_budget" | "max_turns" | "revoked" | "user") | null;
            id: string;
            /** @enum {unknown} */
            mode: "full_auto" | "manual" | "semi_auto";
            objective: string;
            profile: string;
            /** @description Permission requests of the local agent that wait for an answer. */
            questions: number;
            state: components["schemas"]["SessionState"];
            turn: number;
            /** @description Entries that the user has not read; `read` changes it. */
            unread: number;
            /** @description Whether a draft waits for approval. */
            waits: boolean;
        };
        /**
         * SharedRunList
         * @description A page of runs, the newest first.
         */
        SharedRunList: {
            /** @description The `before` of the next page; None: this is the last one. */
            next: string | null;
            runs: components["schemas"]["SharedRunLine"][];
        };
        /**
         * SharedRunView
         * @description The whole view of a run.
         */
        SharedRunView: {
            /** @description The time spent on it so far. */
            active_ms: number;
            /** @description The actions that are possible now. */
            acts: ("answer" | "approve" | "hand_back" | "pause" | "reject" | "resume" | "say" | "set_mode" | "set_objective" | "stop" | "take_over")[];
            /** @description The name under which the device shares the other agent; empty: the only one that it shares. */
            agent: string;
            /** @description The files that the next message will carry. */
            attached: components["schemas"]["FileView"][];
            banner: string;
            /**
             * @description Who speaks next.
             * @enum {unknown}
             */
            decides: "agent" | "person";
            device: string;
            draft: components["schemas"]["DraftView"] | null;
            /** @description Entries before those shown here; `GET /v1/shared/runs/{run}/entries` has them. */
            earlier: number;
            ended: ("done" | "max_duration_ms" | "max_failures" | "max_tokens_budget" | "max_turns" | "revoked" | "user") | null;
            failure: string;
            failures: number;
            id: string;
            /** @description Whether the clock is running. */
            is_active: boolean;
            /** @description Replies that arrived while it is paused. */
            kept: number;
            /** @description Those replies; each joins the timeline when the run goes on. */
            kept_replies: components["schemas"]["EntryView"][];
            /** @description The same limits and those of the profile; None: the profile does not exist any more. */
            limits: components["schemas"]["LimitsView"] | null;
            max_duration_ms: number;
            max_failures: number;
            max_tokens: number | null;
            max_turns: number;
            /** @enum {unknown} */
            mode: "full_auto" | "manual" | "semi_auto";
            objective: string;
            profile: string;
            /** @description What the local agent asks its user; each is answered with `answer`. */
            questions: components["schemas"]["QuestionView"][];
            /** @description The drafts that a person rejected. Ids order them among the entries of the timeline. */
            rejected: components["schemas"]["EntryView"][];
            result: string;
            state: components["schemas"]["SessionState"];
            timeline: components["schemas"]["EntryView"][];
            tokens: number;
            turn: number;
            /** @description Entries that the user has not read; `read` changes it. */
            unread: number;
        };
        /**
         * SharedStatus
         * @description This device in short.
         */
        SharedStatus: {
            /** @description None: not known. */
            connection: components["schemas"]["ConnectionView"] | null;
            counts: components["schemas"]["Counts"];
            /** @description Its id. */
            device: string;
            name: string;
            shared: components["schemas"]["SharedAgentView"][];
            /** @description Since when this process serves it. */
            started_ms: number;
            version: string;
        };
        /**
         * SignedOut
         * @description Whether a session has ended.
         */
        SignedOut: {
            signed_out: boolean;
        };
        /**
         * SignIn
         * @description The token of a client, typed into the sign-in page.
         */
        SignIn: {
            token: string;
        };
        /**
         * StartRequest
         * @description Start a run.
         */
        StartRequest: {
            /**
             * @description The name under which the device shares the other agent; None: the only one that it shares.
             * @default null
             */
            agent: string | null;
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /**
             * @description Who writes the first message. With `person` the local agent is asked nothing until `hand_back`.
             * @default agent
             * @enum {unknown}
             */
            decides: "agent" | "person";
            /** @description The id or the name of a device; or a group, of which one device is chosen. */
            device: string;
            /**
             * @description None: the mode of the profile.
             * @default null
             */
            mode: ("full_auto" | "manual" | "semi_auto") | null;
            /**
             * @description What the local agent is to reach; needed unless a person writes.
             * @default null
             */
            objective: string | null;
            profile: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * StopRequest
         * @description End the run.
         */
        StopRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * StreamReady
         * @description Sent to a reader once it has the current state of everything.
         */
        StreamReady: {
            /**
             * @description Whether it got all changes since its last event. If not, it got the current state of everything but ended runs,
             *     and may list those.
             */
            resumed: boolean;
        };
        /**
         * TakeOverRequest
         * @description The person speaks next.
         */
        TakeOverRequest: {
            /**
             * @description Who sends the command, as the audit log names them; empty: this API.
             * @default
             */
            by: string;
            /**
             * @description The interface that the person uses, for the audit log.
             * @default api
             * @enum {unknown}
             */
            via: "api" | "chat" | "pending";
        };
        /**
         * UnreadView
         * @description How many entries the user has not read.
         */
        UnreadView: {
            /** @description By the id of the device; devices without unread entries are left out. */
            devices: {
                [key: string]: number;
            };
            /** @description By the id of the run; runs without unread entries are left out. */
            runs: {
                [key: string]: number;
            };
            total: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
