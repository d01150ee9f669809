// Made by `npm run types` from the OpenAPI document. Do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AnswerRequest
         * @description Answer a permission request of the local agent.
         */
        AnswerRequest: {
            /** @default  */
            by: string;
            /** @default null */
            choice: string | null;
            question: string;
            /**
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
            /** @default  */
            by: string;
            draft: string;
            /** @default null */
            text: string | null;
            /**
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
            name: string;
            /** @enum {unknown} */
            role: "local_agent" | "remote_agent" | "user";
            via: string;
        };
        /**
         * ChoiceView
         * @description A possible answer to a permission request.
         */
        ChoiceView: {
            id: string;
            kind: string;
            name: string;
        };
        /**
         * Code
         * @description What went wrong, for programs.
         * @enum {unknown}
         */
        Code: "AGENT_NOT_FOUND" | "APPROVAL_DECLINED" | "CANCELLED" | "CAPABILITY_NOT_FOUND" | "CHAIN_TOO_LONG" | "CREDENTIAL_EXPIRED" | "CREDENTIAL_INVALID" | "CYCLE_DETECTED" | "DATA_MISSING_REQUIRED_INPUT" | "DELEGATION_FAILED" | "DELEGATION_UNAVAILABLE" | "DUPLICATE_REQUEST" | "FAN_OUT_EXCEEDED" | "INPUT_VALIDATION_FAILED" | "LOOP_DETECTED" | "MALFORMED_ENVELOPE" | "MAX_DELEGATIONS_EXCEEDED" | "MAX_DEPTH_EXCEEDED" | "NESTED_CALLS_FORBIDDEN" | "NOT_FOUND" | "OUTCOME_UNKNOWN" | "OVERLOADED" | "PATH_NOT_ALLOWED" | "PERMISSION_DENIED" | "RATE_LIMITED" | "RECORD_LIMIT_EXCEEDED" | "RESULT_VALIDATION_FAILED" | "STATE_CONFLICT" | "STORE_UNAVAILABLE" | "TEAM_INVALID" | "TIMEOUT" | "TOKEN_BUDGET_EXCEEDED" | "TOOL_NOT_ALLOWED" | "TOO_LARGE" | "UNAUTHENTICATED" | "UNSUPPORTED_MEDIA_TYPE" | "USER_HAS_OPEN_RUN" | "USER_MISMATCH" | "VERSION_UNSUPPORTED";
        /**
         * ConnectionView
         * @description The connection of this device to its gateway.
         */
        ConnectionView: {
            since_ms: number;
            /** @enum {unknown} */
            state: "connected" | "connecting" | "ended" | "silent" | "waiting";
            why: string;
        };
        /**
         * ConsoleInfo
         * @description What this server offers to a browser.
         */
        ConsoleInfo: {
            csrf: string;
            /** @default USD */
            currency: string;
            team: string;
            version: string;
            views: string[];
            who: components["schemas"]["ConsoleUser"];
        };
        /**
         * ConsoleUser
         * @description The client of the server that a browser is signed in as.
         */
        ConsoleUser: {
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
            drafts: number;
            open_runs: number;
            profiles: number;
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
            allowed: boolean;
            groups: string[];
            id: string;
            last_heard_ms: number | null;
            name: string;
            offers: components["schemas"]["OfferView"][] | null;
            own: boolean;
            present: boolean | null;
            revoked: boolean;
            shared: boolean;
            verified: boolean;
        };
        /**
         * DraftPart
         * @description The text of a draft so far, while an agent writes it.
         */
        DraftPart: {
            draft: string;
            run: string;
            text: string;
        };
        /**
         * DraftView
         * @description A draft that waits for approval; after the end of the run, one that was not sent.
         */
        DraftView: {
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
            next: string | null;
        };
        /**
         * EntryView
         * @description One entry of a run: a message, or a rejected draft.
         */
        EntryView: {
            approved_by: components["schemas"]["AuthorView"] | null;
            at_ms: number;
            delivery: components["schemas"]["DeliveryView"] | null;
            edited_by: components["schemas"]["AuthorView"] | null;
            failed: string;
            files: components["schemas"]["FileView"][];
            id: string;
            label: ("approved" | "auto_sent" | "edited" | "yours") | "rejected" | null;
            original: string;
            reason: string;
            rejected_by: components["schemas"]["AuthorView"] | null;
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
            summary: string;
        };
        /**
         * Fault
         * @description An error as a value: it travels in a response and is never raised between agents.
         */
        Fault: {
            code: components["schemas"]["Code"];
            /** @default null */
            foreign: string | null;
            message: string;
            /** @default [] */
            problems: components["schemas"]["Problem"][];
            /** @default false */
            recoverable: boolean;
            /** @default null */
            retry_after_ms: number | null;
            /** @default  */
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
            id: string;
            media_type: string;
            name: string;
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
            /** @default  */
            by: string;
            /**
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
            /** @default false */
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
            /** @default  */
            by: string;
            /**
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
            message: string;
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
            allowed: boolean;
            devices: string[];
            id: string;
            max_concurrent: number;
            max_duration_ms: number;
            max_failures: number;
            max_tokens: number | null;
            max_turns: number;
            /** @enum {unknown} */
            mode: "full_auto" | "manual" | "semi_auto";
            rules: string[];
        };
        /**
         * Quantity
         * @description A limit, and what is used of it.
         */
        Quantity: {
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
            kind: string;
            title: string;
        };
        /**
         * RateView
         * @description How many messages the profile may send to the device in a time.
         */
        RateView: {
            ends_ms: number | null;
            most: number;
            used: number;
            window_ms: number;
        };
        /**
         * ReadRequest
         * @description The user has read the run up to an entry. This is no step of the run, and possible at any time.
         */
        ReadRequest: {
            entry: string;
        };
        /**
         * RejectRequest
         * @description Do not send a draft; the agent gets the reason and drafts again.
         */
        RejectRequest: {
            /** @default  */
            by: string;
            draft: string;
            /** @default  */
            reason: string;
            /**
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
            /** @default null */
            agent: string | null;
            /** @default  */
            by: string;
            /**
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
            /** @default  */
            by: string;
            text: string;
            /**
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
            /** @default  */
            by: string;
            /** @enum {unknown} */
            mode: "full_auto" | "manual" | "semi_auto";
            /**
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
            /** @default  */
            by: string;
            objective: string;
            /**
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
            devices: string[];
            name: string;
        };
        /**
         * SharedRunLine
         * @description A run in one line.
         */
        SharedRunLine: {
            agent: string;
            at_ms: number | null;
            device: string;
            ended: ("done" | "max_duration_ms" | "max_failures" | "max_tokens_budget" | "max_turns" | "user") | null;
            id: string;
            /** @enum {unknown} */
            mode: "full_auto" | "manual" | "semi_auto";
            objective: string;
            profile: string;
            questions: number;
            state: components["schemas"]["SessionState"];
            turn: number;
            unread: number;
            waits: boolean;
        };
        /**
         * SharedRunList
         * @description A page of runs, the newest first.
         */
        SharedRunList: {
            next: string | null;
            runs: components["schemas"]["SharedRunLine"][];
        };
        /**
         * SharedRunView
         * @description The whole view of a run.
         */
        SharedRunView: {
            active_ms: number;
            acts: ("answer" | "approve" | "hand_back" | "pause" | "reject" | "resume" | "say" | "set_mode" | "set_objective" | "stop" | "take_over")[];
            agent: string;
            attached: components["schemas"]["FileView"][];
            banner: string;
            /** @enum {unknown} */
            decides: "agent" | "person";
            device: string;
            draft: components["schemas"]["DraftView"] | null;
            earlier: number;
            ended: ("done" | "max_duration_ms" | "max_failures" | "max_tokens_budget" | "max_turns" | "user") | null;
            failure: string;
            failures: number;
            id: string;
            is_active: boolean;
            kept: number;
            kept_replies: components["schemas"]["EntryView"][];
            limits: components["schemas"]["LimitsView"] | null;
            max_duration_ms: number;
            max_failures: number;
            max_tokens: number | null;
            max_turns: number;
            /** @enum {unknown} */
            mode: "full_auto" | "manual" | "semi_auto";
            objective: string;
            profile: string;
            questions: components["schemas"]["QuestionView"][];
            rejected: components["schemas"]["EntryView"][];
            result: string;
            state: components["schemas"]["SessionState"];
            timeline: components["schemas"]["EntryView"][];
            tokens: number;
            turn: number;
            unread: number;
        };
        /**
         * SharedStatus
         * @description This device in short.
         */
        SharedStatus: {
            connection: components["schemas"]["ConnectionView"] | null;
            counts: components["schemas"]["Counts"];
            device: string;
            name: string;
            shared: components["schemas"]["SharedAgentView"][];
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
            /** @default null */
            agent: string | null;
            /** @default  */
            by: string;
            /**
             * @default agent
             * @enum {unknown}
             */
            decides: "agent" | "person";
            device: string;
            /** @default null */
            mode: ("full_auto" | "manual" | "semi_auto") | null;
            /** @default null */
            objective: string | null;
            profile: string;
            /**
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
            /** @default  */
            by: string;
            /**
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
            resumed: boolean;
        };
        /**
         * TakeOverRequest
         * @description The person speaks next.
         */
        TakeOverRequest: {
            /** @default  */
            by: string;
            /**
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
            devices: {
                [key: string]: number;
            };
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
