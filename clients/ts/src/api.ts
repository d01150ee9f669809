// Made by `npm run types` in web/ from the OpenAPI document. Do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Advice
         * @description What to change so that a refused request would be allowed, and where in the team file.
         */
        Advice: {
            /** @default  */
            file: string;
            /**
             * @description Whether the file sets the key; if not, its default holds.
             * @default false
             */
            is_set: boolean;
            /** @description The key of the team file: `limits.max_depth`. */
            key: string;
            /**
             * @description The line of the key, or of the section to add it to; None: neither is in the file.
             * @default null
             */
            line: number | null;
            /** @description What to do, as a sentence. */
            says: string;
            /**
             * @description The present value, as in the file.
             * @default
             */
            value: string;
        };
        /**
         * AgentGraph
         * @description The agents of a team with their load, who may call whom, and who did.
         */
        AgentGraph: {
            agents: components["schemas"]["AgentLoad"][];
            /** @description Whether the whole record has been read. If not, ask again: each request reads on. */
            complete: boolean;
            currency: string;
            edges: components["schemas"]["CallEdge"][];
            /** @description Since when the figures are whole; 0: from the beginning of the record. */
            from_ms: number;
            /** @description Time in milliseconds since 1970. */
            since_ms: number;
            /** @description The time of the newest record that has been read. */
            through_ms: number;
            /** @description Time in milliseconds since 1970. */
            until_ms: number;
        };
        /**
         * AgentLoad
         * @description The load of an agent at one moment, and how its delegations of the last 24 hours went.
         */
        AgentLoad: {
            /** @description `closed`: called as usual; `open`: not called; `probing`: on trial. */
            breaker: components["schemas"]["Phase"];
            /** @description Estimated cost of the tokens whose price is known; null: no price is known. */
            cost: number | null;
            /** @description Delegations of the last 24 hours that ended. */
            delegations: number;
            description: string;
            /** @description How many more it could start now. */
            free: number;
            /** @description The other hubs that host it, where that is known. */
            hosts: components["schemas"]["HostLine"][];
            /** @description Successes and failures of each of these hours, oldest first. */
            hours: [
                number,
                number
            ][];
            /** @description Whether it runs elsewhere than in this hub. */
            is_remote: boolean;
            /** @description Its model in the team file; empty: it names none. */
            model: string;
            name: string;
            /** @description How often its breaker has opened of late. */
            openings: number;
            p50_ms: number | null;
            p95_ms: number | null;
            /** @description How long calls are refused until one may test whether it has recovered; 0: they are not. */
            probe_ms: number;
            /** @description How many may wait. */
            queue: number;
            /** @description Delegations that wait for a slot. */
            queued: number;
            /** @description Its rate limit; null: it has none. */
            rate: components["schemas"]["RateUse"] | null;
            /** @description Delegations in progress. */
            running: number;
            /** @description How many delegations it can work on at once. */
            slots: number;
            /** @description Share of successes among those it worked on; null: none. */
            success: number | null;
            /** @description Tokens it spent itself. */
            tokens: number;
        };
        /**
         * AgentPage
         * @description Everything about one agent: its card, its load, its ranking and its last errors.
         */
        AgentPage: {
            /** @description The agents that may call it. */
            called_by: string[];
            capabilities: components["schemas"]["Capability"][];
            /** @description Whether the whole record has been read. If not, ask again: each request reads on. */
            complete: boolean;
            /** @description Its newest failures and refusals, newest first. */
            faults: components["schemas"]["FaultLine"][];
            /** @enum {unknown} */
            isolation: "process" | "task";
            load: components["schemas"]["AgentLoad"];
            /** @description Tokens of a delegation to it; null: the default of the team. */
            max_tokens: number | null;
            /** @description The agents that it may call; `*`: all. */
            may_call: string[];
            rankings: components["schemas"]["CapabilityRanking"][];
            /** @description The time of the newest record that has been read. */
            through_ms: number;
            /** @description Time of a delegation to it; null: the default of the team. */
            time_ms: number | null;
            tools: string[];
            version: string;
        };
        /**
         * AgentPolicy
         * @description What the team lets an agent do.
         */
        AgentPolicy: {
            /** @enum {unknown} */
            authority: "caller" | "own";
            capabilities: string[];
            concurrency: number;
            description: string;
            /** @description `*` is everyone. */
            may_call: string[];
            name: string;
            queue: number;
            rate: components["schemas"]["Rate"] | null;
            sees: string[];
            time_ms: number | null;
            tokens: number | null;
            tools: string[];
        };
        /**
         * AgentRate
         * @description An agent with a rate limit.
         */
        AgentRate: {
            agent: string;
            rate: components["schemas"]["RateUse"];
        };
        /**
         * Agents
         * @description The agents that the client may ask.
         */
        Agents: {
            agents: components["schemas"]["PublicCard"][];
        };
        /**
         * AnsweredApproval
         * @description A question that was answered.
         */
        AnsweredApproval: {
            agreed: boolean;
            at_ms: number;
            /** @description Who answered: the name of a person, or of the policy that answered for them. */
            by: string;
            delegation: string;
            edited: string[];
            id: string;
            question: string;
            reason: string;
            run: string;
            target: string;
        };
        /**
         * AnswerGiven
         * @description An answer that counts.
         */
        AnswerGiven: {
            agreed: boolean;
            /** @description Who answered: the name of a person, or of the policy that answered for them. */
            by: string;
            edited: string[];
            id: string;
            reason: string;
            run: string;
        };
        /**
         * AnswerOutcome
         * @description What became of one of several answers.
         */
        AnswerOutcome: {
            /**
             * @description Why it does not count.
             * @default null
             */
            fault: components["schemas"]["Fault"] | null;
            /** @default null */
            given: components["schemas"]["AnswerGiven"] | null;
            id: string;
        };
        /**
         * AnswerOutcomes
         * @description What became of each answer, in the order in which they were sent.
         */
        AnswerOutcomes: {
            outcomes: components["schemas"]["AnswerOutcome"][];
        };
        /**
         * ApprovalAnswer
         * @description The answer of a person to a question.
         */
        ApprovalAnswer: {
            agree: boolean;
            /**
             * @description The name of the person, if the client speaks for several; it is recorded with the name of the client.
             * @default
             */
            by: string;
            /** @description The digest of what the person was shown. */
            digest: string;
            /**
             * @description The edited fields and their new values, if the question allows it: `objective`, `input`.
             * @default {}
             */
            edits: Record<string, never>;
            /** @default  */
            reason: string;
        };
        /**
         * ApprovalDetail
         * @description A question with the whole request that it is about, redacted.
         */
        ApprovalDetail: {
            answered: components["schemas"]["AnsweredApproval"] | null;
            id: string;
            /** @description None: the request was changed or removed since. */
            request: components["schemas"]["Request"] | null;
            /**
             * @description `over`: it expired or was withdrawn, and nobody answered.
             * @enum {unknown}
             */
            state: "answered" | "over" | "waiting";
            /** @description What a person is shown before they answer; None: it was answered, or is over. */
            view: components["schemas"]["ShownQuestion"] | null;
            waiting: components["schemas"]["WaitingApproval"] | null;
        };
        /**
         * ApprovalList
         * @description What waits, the oldest first, and what was answered lately, the newest first.
         */
        ApprovalList: {
            answered: components["schemas"]["AnsweredApproval"][];
            waiting: components["schemas"]["WaitingApproval"][];
        };
        /**
         * ApprovalView
         * @description A question to a person about the delegation, and the answer.
         */
        ApprovalView: {
            agreed: boolean | null;
            answered_ms: number | null;
            asked_ms: number;
            by: string;
            edited: string[];
            id: string;
            question: string;
            reason: string;
        };
        /**
         * Artifact
         * @description A piece of structured data that belongs to an answer.
         */
        Artifact: {
            /** @default  */
            label: string;
            /**
             * @description The form of its value; any other of a peer is read as JSON.
             * @enum {unknown}
             */
            type: "file" | "id" | "json" | "table" | "url";
            value: unknown;
        };
        /**
         * AuditedRow
         * @description A row of the audit log about the delegation.
         */
        AuditedRow: {
            at_ms: number;
            /** @description Whether it follows from the row before it in the hash chain; None: not checked. */
            intact: boolean | null;
            kind: components["schemas"]["Kind"];
            seq: number;
        };
        /**
         * AuditedRows
         * @description The rows of the audit log about the delegation, and whether they are as they were written.
         */
        AuditedRows: {
            intact: boolean | null;
            rows: components["schemas"]["AuditedRow"][];
            says: string;
        };
        /**
         * AuditFinding
         * @description One place where the record was changed: rows *first* to *last*, or checkpoints of those numbers.
         *
         *     Both are 0 where the finding has no place.
         */
        AuditFinding: {
            first: number;
            last: number;
            message: string;
            tampering: components["schemas"]["Tampering"];
        };
        /**
         * AuditPage
         * @description A page of the audit log, in order.
         */
        AuditPage: {
            /**
             * @description The value of `after` for the next page; None if there is none yet.
             * @default null
             */
            next: number | null;
            records: components["schemas"]["RecordLine"][];
        };
        /**
         * AuditRowView
         * @description A row of the audit log, and its place in the chain.
         */
        AuditRowView: {
            /** @description The row that the newest checkpoint signs; None: there is no checkpoint yet. */
            checkpoint: number | null;
            digest: string;
            /** @description Whether a checkpoint covers this row. */
            is_signed: boolean;
            /** @description The digest of the row before it; 64 zeros for the first. */
            previous: string;
            /** @description None: the row was removed on purpose, and its digest is kept. */
            record: components["schemas"]["RecordLine"] | null;
        };
        /**
         * AuditVerification
         * @description The newest verification of the record, and the one that is running.
         */
        AuditVerification: {
            /**
             * @description Why the last verification could not be done.
             * @default
             */
            failure: string;
            /** @description How far the running verification has come. */
            progress: components["schemas"]["VerificationProgress"] | null;
            /** @description The last result; None: there is none yet. */
            result: components["schemas"]["VerifiedRecord"] | null;
            /** @enum {unknown} */
            state: "done" | "failed" | "running";
            /** @description When the whole record was last verified; None: not since the server started. */
            whole_ms: number | null;
        };
        /**
         * BreakerSettings
         * @description When to open and for how long.
         */
        BreakerSettings: {
            /**
             * @description The share counts from this many calls in a window.
             * @default 20
             */
            at_least_calls: number;
            /**
             * @description It also opens if this share of the calls in a window fails.
             * @default 0.5
             */
            failure_share: number;
            /**
             * @description It opens after this many failures in a row.
             * @default 5
             */
            failures_in_a_row: number;
            /**
             * @description The longest that it stays open before a probe.
             * @default 300
             */
            max_open_s: number;
            /**
             * @description How long it stays open before a probe; the second time in a row twice as long, and so on.
             * @default 30
             */
            open_s: number;
            /**
             * @description The length of a window, in seconds.
             * @default 60
             */
            window_s: number;
        };
        /**
         * BreakerThen
         * @description The circuit breaker of the callee when the request was judged.
         */
        BreakerThen: {
            /** @description The last outcomes of the agent before the request, the newest first. */
            before: components["schemas"]["OutcomeBefore"][];
            retry_after_ms: number | null;
            says: string;
            /** @enum {unknown} */
            state: "closed" | "not_asked" | "open" | "probing";
        };
        /**
         * BudgetState
         * @description The limits in force, and what is used of them now.
         */
        BudgetState: {
            /** @description Whether the whole record has been read. If not, ask again: each request reads on. */
            complete: boolean;
            /** @description Begin of the current day (UTC). */
            day_ms: number;
            limits: components["schemas"]["LimitLine"][];
            /** @description The agents with a rate limit. */
            rates: components["schemas"]["AgentRate"][];
            /** @description Runs in progress on this hub, oldest first. */
            runs: components["schemas"]["RunBudget"][];
            /** @description The time of the newest record that has been read. */
            through_ms: number;
            /** @description Users with runs of this day, most tokens first. */
            users: components["schemas"]["UserDay"][];
        };
        /**
         * CallBelow
         * @description A delegation that this one asked for.
         */
        CallBelow: {
            code: components["schemas"]["Code"] | null;
            path: string;
            status: components["schemas"]["Status"] | null;
            target: string;
            tokens: number;
            used: number;
        };
        /**
         * CallEdge
         * @description One agent that may call another, or did.
         */
        CallEdge: {
            /** @description Calls in the period, including refused ones. */
            calls: number;
            failed: number;
            /** @description Whether the team lets it, as far as the cards say. */
            may: boolean;
            /** @description Mean time of a call; null: there was none. */
            mean_ms: number | null;
            /** @description The caller; `user` for requests of users. */
            origin: string;
            refused: number;
            target: string;
            /** @description Tokens of these calls with all below. */
            tokens: number;
        };
        /**
         * Capability
         * @description Something an agent can do, by code.
         */
        Capability: {
            /**
             * @description How long an answer may be reused; only for `read_only` capabilities.
             * @default null
             */
            cache_ms: number | null;
            /**
             * @description Whether an answer may also be reused for requests that ask the same in other words.
             * @default false
             */
            cache_similar: boolean;
            /** @description Its code: `TAX_DEDUCTIBLE`. */
            code: string;
            /**
             * @description Whether a user has to agree each time although it only reads; to what changes something, always.
             * @default false
             */
            confirm: boolean;
            /**
             * @description The money of a call in millionths of the team's currency, unless the caller sets less.
             * @default null
             */
            cost: number | null;
            /**
             * @description What it does, for callers and models.
             * @default
             */
            description: string;
            /**
             * @description Requests that it is for, in the words of users.
             * @default []
             */
            examples: string[];
            /**
             * @description After how long a second agent with this capability is called too, if the first has not answered by then.
             * @default null
             */
            hedge_ms: number | null;
            /** @default null */
            input_schema: Record<string, never> | null;
            /**
             * @description Whether users may get each other's answers.
             * @default false
             */
            public: boolean;
            /**
             * @description Whether it changes nothing.
             * @default false
             */
            read_only: boolean;
            /** @default null */
            result_schema: Record<string, never> | null;
            /**
             * @description Kinds of personal data that it needs (`IBAN`): it gets them raw.
             * @default []
             */
            sees: string[];
            /**
             * @description Fields of its input, by dotted path, that it gets raw.
             * @default []
             */
            sees_fields: string[];
            /**
             * @description The time of a call, unless the caller sets less.
             * @default null
             */
            time_ms: number | null;
            /**
             * @description The tokens of a call, unless the caller sets less.
             * @default null
             */
            tokens: number | null;
            /**
             * @description The capability that undoes it.
             * @default null
             */
            undo: string | null;
            /**
             * @description Its version.
             * @default 1.0
             */
            version: string;
        };
        /**
         * CapabilityRanking
         * @description The agents that offer a capability, in the order in which they are asked.
         */
        CapabilityRanking: {
            capability: string;
            ranking: components["schemas"]["RankingLine"][];
        };
        /**
         * CarvedMoney
         * @description Money in millionths of the team's currency: what the caller had, what it passed on, and what became of it.
         */
        CarvedMoney: {
            below: number;
            /** @description The caller's own limit; None: it had none, or a person asked. */
            caller: number | null;
            /** @description None: there was no limit. */
            granted: number | null;
            own: number | null;
            /** @description Tokens that are not counted, since the price of their model is not known. */
            unpriced: number;
            /** @description What it used, including the delegations below it; None: not ended. */
            used: number | null;
        };
        /**
         * CarvedTime
         * @description Time in milliseconds: what the caller had, what it passed on, and what was used.
         */
        CarvedTime: {
            /** @description The time in which its clock stood still for a person. */
            asked: number;
            caller: number | null;
            granted: number;
            /** @description What the caller had left, if its clock never stood still for a person. */
            left_before: number | null;
            /** @description Of which it waited for a free slot. */
            queued: number;
            used: number | null;
        };
        /**
         * CarvedTokens
         * @description Tokens: what the caller had, what it passed on, and what became of them.
         */
        CarvedTokens: {
            /** @description What the delegations below it used or hold. */
            below: number;
            /** @description The caller's own grant; None: a person asked. */
            caller: number | null;
            given_back: number | null;
            granted: number;
            /** @description What the caller could have left before this call: its grant without what its other calls used or held. */
            left_before: number | null;
            /** @default 0 */
            overrun: number;
            /** @description What it used itself. */
            own: number | null;
            /** @description What it used, including the delegations below it; None: not ended. */
            used: number | null;
        };
        /**
         * ChangedVerdict
         * @description A guard that decides otherwise with the draft.
         */
        ChangedVerdict: {
            guard: string;
            /** @description Its verdict with the present team; empty: the guard does not exist there. */
            now: string;
            /** @description Its verdict with the draft; empty likewise. */
            then: string;
        };
        /**
         * Code
         * @description What went wrong, for programs.
         * @enum {unknown}
         */
        Code: "AGENT_NOT_FOUND" | "APPROVAL_DECLINED" | "CANCELLED" | "CAPABILITY_NOT_FOUND" | "CHAIN_TOO_LONG" | "CREDENTIAL_EXPIRED" | "CREDENTIAL_INVALID" | "CYCLE_DETECTED" | "DATA_MISSING_REQUIRED_INPUT" | "DELEGATION_FAILED" | "DELEGATION_UNAVAILABLE" | "DUPLICATE_REQUEST" | "FAN_OUT_EXCEEDED" | "INPUT_VALIDATION_FAILED" | "LOOP_DETECTED" | "MALFORMED_ENVELOPE" | "MAX_DELEGATIONS_EXCEEDED" | "MAX_DEPTH_EXCEEDED" | "NESTED_CALLS_FORBIDDEN" | "NOT_FOUND" | "NOT_RECORDED" | "OUTCOME_UNKNOWN" | "OVERLOADED" | "PATH_NOT_ALLOWED" | "PERMISSION_DENIED" | "RATE_LIMITED" | "RECORD_LIMIT_EXCEEDED" | "RESULT_VALIDATION_FAILED" | "STATE_CONFLICT" | "STORE_UNAVAILABLE" | "TEAM_INVALID" | "TIMEOUT" | "TOKEN_BUDGET_EXCEEDED" | "TOOL_NOT_ALLOWED" | "TOO_LARGE" | "UNAUTHENTICATED" | "UNSUPPORTED_MEDIA_TYPE" | "USER_HAS_OPEN_RUN" | "USER_MISMATCH" | "VERSION_UNSUPPORTED";
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
         * ContextFilter
         * @description Which part of the caller's conversation the callee may see; an empty one asks for the newest that fit.
         */
        ContextFilter: {
            /**
             * @description Whether the content of the named files is shown, as far as there is room, and not only their names.
             * @default false
             */
            include_contents: boolean;
            /** @default false */
            include_facts: boolean;
            /** @default false */
            include_summary: boolean;
            /** @default false */
            include_workspace: boolean;
            /**
             * @description Only messages with one of these words.
             * @default null
             */
            keywords: string[] | null;
            /**
             * @description Which notes of the conversation the callee may see, never more than its caller may. None: an agent that is called
             *     by another sees none; the agent that the user talks to sees all notes of its own session.
             * @default null
             */
            known: ("all" | "decisions" | "none") | null;
            /** @default null */
            last_messages: number | null;
            /** @default null */
            max_age_seconds: number | null;
            /** @default null */
            roles: ("user" | "assistant" | "system")[] | null;
            /**
             * @description Only these files of the workspace.
             * @default null
             */
            workspace_files: string[] | null;
        };
        /**
         * DeciderRule
         * @description The rule of the team that asked.
         */
        DeciderRule: {
            file: string;
            line: number | null;
            /** @description Its place among the rules of the file, from 1. */
            number: number;
            then: string;
        };
        /**
         * Delegation
         * @description One delegation: caller, callee, objective, and outcome (None: in progress).
         */
        Delegation: {
            depth: number;
            /** @default 0 */
            duration_ms: number;
            /** @default null */
            fault: components["schemas"]["Fault"] | null;
            id: string;
            objective: string;
            origin: string;
            parent: string | null;
            /** @default  */
            preview: string;
            started_ms: number;
            /** @default null */
            status: components["schemas"]["Status"] | null;
            target: string;
            /** @default [] */
            tool_calls: string[];
            /** @default {} */
            usage: components["schemas"]["Usage"];
            user: string;
        };
        /**
         * DelegationDetail
         * @description Everything that is recorded about one delegation.
         */
        DelegationDetail: {
            /** @description What to change in the team file, if it was refused or failed for a limit. */
            advice: components["schemas"]["Advice"][];
            approvals: components["schemas"]["ApprovalView"][];
            asked_ms: number;
            audit: components["schemas"]["AuditedRows"];
            breaker: components["schemas"]["BreakerThen"];
            calls: components["schemas"]["CallBelow"][];
            capability: string | null;
            correlation: string | null;
            ended_ms: number | null;
            held_back: components["schemas"]["HeldBackView"];
            id: string;
            /** @description Records about it that are not shown here, because there are too many; `GET /v1/audit` has all. */
            left_out: number;
            origin: string;
            parent: string | null;
            parent_session: string | null;
            path: string;
            remit: components["schemas"]["RemitView"];
            response: components["schemas"]["Response"] | null;
            retry_of: string | null;
            run: string;
            said: components["schemas"]["SaidView"][];
            session: string | null;
            shown: components["schemas"]["ShownView"];
            /** @description Its state, as in `GET /v1/runs/{run}/tree`. */
            state: string;
            target: string;
            tools: components["schemas"]["ToolUseView"][];
            user: string;
            verdicts: components["schemas"]["RecordedVerdict"][];
            via: string | null;
        };
        /**
         * DelegationTable
         * @description Delegations of a run, one column for each property: entry *i* of every column belongs to delegation *i*.
         *
         *     A parent stands before its children. Names and states are numbers of entries of `names`; -1: none.
         */
        DelegationTable: {
            agent: number[];
            capability: number[];
            /** @description The error code. */
            code: number[];
            /**
             * @description Estimated cost, children included; empty if no price is known.
             * @default []
             */
            cost: (number | null)[];
            /** @description Agents, capabilities, states and error codes. */
            names: string[];
            /**
             * @description The most important detail: the error message, the question to a person, the last progress message, or what became
             *     of the conversation that was handed over.
             */
            note: string[];
            /** @description The first line of the objective. */
            objective: string[];
            /** @description The caller; -1: not known. */
            origin: number[];
            /** @description Milliseconds of `took` in which none of its children was at work. */
            own: number[];
            /** @default [] */
            own_cost: (number | null)[];
            /** @description Tokens spent, children not included. */
            own_tokens: number[];
            /**
             * @description The parent of each path whose parent is not the path before its last dot.
             * @default {}
             */
            parents: {
                [key: string]: string;
            };
            /**
             * @description The path in the run without the run's id: `""` for the root, `2.1` for its grandchild. A part of the run that
             *     another hub executed has paths of its own, which begin with `/`.
             */
            path: string[];
            /** @description Milliseconds from the start of the run. */
            started: number[];
            /**
             * @description How it ended: `success`, `partial`, `failed`, `timeout`, `refused`, `cancelled`; or where it stands: `waiting`,
             *     `running`, `asking`; or `unknown`, `not begun`, if the run ended without recording it.
             */
            state: number[];
            /** @description Tokens spent, children included. */
            tokens: number[];
            /** @description Milliseconds, so far if it has not ended, without the time that it waited for a person. */
            took: number[];
            /** @description Number of uses of tools. */
            tools: number[];
        };
        /**
         * DraftExplanation
         * @description What would happen to a call with the limits, rules and permissions of a draft team file.
         */
        DraftExplanation: {
            /** @description The keys in which the draft differs from the present team and which count here. */
            considered: string[];
            explanation: components["schemas"]["Explanation"];
            /** @description The keys in which it differs and which do not count: they need a restart, or code. */
            ignored: string[];
        };
        /**
         * ErasedUser
         * @description What was erased of a user.
         */
        ErasedUser: {
            facts: number;
            records: number;
            /** @description The digest of the user's name under which the erasure is recorded. */
            subject: string;
            /** @description Redacted values. */
            values: number;
        };
        /**
         * Explanation
         * @description What would happen to a request, with the verdict of each guard. Printed by `remit policy explain --json`.
         */
        Explanation: {
            /**
             * @description Source of its tools and targets: its own, or limited to its caller's.
             * @default null
             */
            authority: ("caller" | "own") | null;
            /**
             * @description The deciding guard; empty if none objects.
             * @default
             */
            by: string;
            /**
             * @description Fields that the person may edit before approving.
             * @default []
             */
            editable: string[];
            /** @description Exit code of the command. */
            exit_code: number;
            /**
             * @description Why it would be refused.
             * @default null
             */
            fault: components["schemas"]["Fault"] | null;
            /** @description The verdict of each guard, in evaluation order. */
            guards: components["schemas"]["GuardVerdict"][];
            /** @description The caller. */
            origin: string;
            /**
             * @description The outcome; `asks`: a person must approve first.
             * @enum {unknown}
             */
            outcome: "allowed" | "asks" | "refused";
            /**
             * @description Whether delegating makes sense; null: no capability is named or recognized.
             * @default null
             */
            place: components["schemas"]["Placing"] | null;
            /**
             * @description The question to the person.
             * @default
             */
            question: string;
            /** @description The request as it would be recorded, with tokens in place of redacted values. */
            request: components["schemas"]["Request"];
            /** @enum {unknown} */
            schema: "remit.explanation/1";
            /**
             * @description Values that redaction found.
             * @default []
             */
            struck: components["schemas"]["Struck"][];
            /** @description The callee. */
            target: string;
            /**
             * @description The agents it could call.
             * @default []
             */
            targets: string[];
            /**
             * @description The tools it could use.
             * @default []
             */
            tools: string[];
        };
        /**
         * Failure
         * @description Why a request did not become a delegation.
         */
        Failure: {
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
         * FaultLine
         * @description A delegation that failed or was refused.
         */
        FaultLine: {
            /** @description Time in milliseconds since 1970. */
            at_ms: number;
            code: string;
            /** @description The delegation's path in the run: `run.2.1` is the first child of the second child. */
            delegation: string;
            message: string;
            /** @description The caller. */
            origin: string;
            /** @description The run's id. */
            run: string;
            status: components["schemas"]["Status"];
            user: string;
        };
        /**
         * File
         * @description A file: its name, its media type, and either its content or a URL.
         *
         *     A URL is a reference. It is passed on as it is: no hub ever fetches it.
         */
        File: {
            /**
             * @description The content; base64 in JSON.
             * @default null
             */
            data: string | null;
            /**
             * @description Its media type.
             * @default application/octet-stream
             */
            media_type: string;
            /** @description Its name, without a folder. */
            name: string;
            /**
             * @description Where it is; never fetched by a hub.
             * @default null
             */
            url: string | null;
        };
        /**
         * FoundRecords
         * @description A page of records that a filter selects, newest first.
         */
        FoundRecords: {
            /**
             * @description The value of `before` for the next page; None if there is none.
             *
             *     A page may be short, or empty, although there is a next one: the rows that one request looks at are limited.
             */
            next: number | null;
            records: components["schemas"]["RecordLine"][];
        };
        /**
         * GuardLine
         * @description A guard.
         */
        GuardLine: {
            /** @description Its name. */
            name: string;
            /** @description The condition it checks. */
            says: string;
        };
        /**
         * Guards
         * @description The guards that judge a request. Printed by `remit policy guards --json`.
         */
        Guards: {
            /** @description The guards, in evaluation order. */
            guards: components["schemas"]["GuardLine"][];
            /** @enum {unknown} */
            schema: "remit.guards/1";
        };
        /**
         * GuardVerdict
         * @description The verdict of one guard.
         */
        GuardVerdict: {
            /**
             * @description The error code if it refuses.
             * @default null
             */
            code: components["schemas"]["Code"] | null;
            /** @description Its name. */
            guard: string;
            /**
             * @description Reason, unless it allows the request.
             * @default
             */
            says: string;
            /**
             * @description Its verdict; `failed`: it raised an error, so the request is refused.
             * @enum {unknown}
             */
            verdict: "allow" | "ask" | "failed" | "refuse" | "rewrite";
        };
        /**
         * Handle
         * @description A delegation that has not ended, and where to ask for it again.
         */
        Handle: {
            /** @description Where to follow its events. */
            events: string;
            id: string;
            /** @description Where to get its outcome. */
            link: string;
            /**
             * @description The question to a person, while it waits for one.
             * @default
             */
            question: string;
            run: string;
            /** @enum {unknown} */
            state: "running" | "waiting";
        };
        /**
         * Handoff
         * @description What the callee is told about the work so far, so that nothing is asked or analysed twice.
         */
        Handoff: {
            /** @default [] */
            assumptions: string[];
            /** @default {} */
            constraints: Record<string, never>;
            /** @default {} */
            data: Record<string, never>;
            /** @default [] */
            decisions: string[];
            /** @default [] */
            facts: string[];
            /** @default [] */
            findings: string[];
            /**
             * @description The session in which the conversation so far is kept.
             * @default null
             */
            history: string | null;
            /**
             * @description The user's request, in the user's words.
             * @default
             */
            original_request: string;
            /**
             * @description The position in the workflow: "Step 3 of 5 (Financial Analysis)".
             * @default
             */
            position: string;
            /** @default [] */
            prior_agents: string[];
            /** @default {} */
            prior_outputs: Record<string, never>;
            /** @default [] */
            references: components["schemas"]["Source"][];
        };
        /**
         * Handover
         * @description The agent that takes a conversation over, and what it sees of it.
         */
        Handover: {
            /**
             * @default {
             *       "known": "all"
             *     }
             */
            context: components["schemas"]["ContextFilter"];
            /** @default  */
            reason: string;
            /** @default null */
            to: string | null;
        };
        /**
         * HeldBackBy
         * @description What kept a message back.
         * @enum {unknown}
         */
        HeldBackBy: "age" | "count" | "keyword" | "no_filter" | "none_wanted" | "role" | "seen_before" | "tokens";
        /**
         * HeldBackMessageView
         * @description A message that the callee was not shown.
         */
        HeldBackMessageView: {
            by: components["schemas"]["HeldBackBy"];
            message: components["schemas"]["MessageView"];
            why: string;
        };
        /**
         * HeldBackPart
         * @description A tool, an agent, or a part of the conversation that the callee did not get.
         */
        HeldBackPart: {
            what: string;
            why: string;
        };
        /**
         * HeldBackView
         * @description What was held back from the callee, and by what.
         */
        HeldBackView: {
            /** @description Further messages that were held back and are not listed: of other runs, or older ones. */
            earlier: number;
            /** @description The context filter of the call. */
            filter: components["schemas"]["ContextFilter"] | null;
            messages: components["schemas"]["HeldBackMessageView"][];
            /** @description Summary, workspace and notes. */
            parts: components["schemas"]["HeldBackPart"][];
            redacted: components["schemas"]["RedactedView"][];
            targets: components["schemas"]["HeldBackPart"][];
            tools: components["schemas"]["HeldBackPart"][];
        };
        /**
         * HostLine
         * @description A hub that hosts an agent.
         */
        HostLine: {
            /** @description How many more requests it could start there when it was last heard of. */
            free: number;
            /** @description Its name in the team. */
            hub: string;
        };
        /**
         * Kind
         * @description The kind of a record; a run's event stream is its records in order.
         * @enum {unknown}
         */
        Kind: "approval" | "break" | "delegation" | "delta" | "notice" | "progress" | "refused" | "removed" | "result" | "shared" | "started" | "tool";
        /**
         * LimitLine
         * @description A limit in force.
         */
        LimitLine: {
            /** @description The key in the team file: `budgets.run_tokens`. */
            name: string;
            /** @enum {unknown} */
            unit: "bytes" | "delegations" | "levels" | "millionths" | "ms" | "tokens";
            value: number;
        };
        /**
         * Limits
         * @description The limits of every delegation of a hub, unless an agent, a capability or a caller sets less.
         */
        Limits: {
            /**
             * @description How long a person has to answer.
             * @default 600000
             */
            approval_timeout_ms: number;
            /**
             * @description What happens when a run needs more tokens than it has, or a model without a price where money is limited: it
             *     stops, or a person is asked.
             * @default stop
             * @enum {unknown}
             */
            at_limit: "ask" | "stop";
            /**
             * @description Whether agents are by default limited to the tools and targets of their caller.
             * @default own
             * @enum {unknown}
             */
            authority: "caller" | "own";
            /**
             * @description What becomes of further calls of `map` and of the tool `sub_agent`: they wait for a place, or are refused.
             * @default queue
             * @enum {unknown}
             */
            beyond_fan_out: "queue" | "refuse";
            /**
             * @description The most tokens of conversation that a callee is shown.
             * @default 4000
             */
            context_tokens: number;
            /**
             * @description The currency of all costs.
             * @default USD
             */
            currency: string;
            /**
             * @description The money of a delegation, unless its caller sets it. None: it shares its caller's.
             * @default null
             */
            delegation_cost: number | null;
            /**
             * @description The time of a delegation, unless its caller sets it.
             * @default 30000
             */
            delegation_time_ms: number;
            /**
             * @description The tokens of a delegation, unless its caller sets them. None: a fair share of what its caller has left.
             * @default null
             */
            delegation_tokens: number | null;
            /**
             * @description How long a cancelled callee may take to clean up before it is abandoned.
             * @default 3000
             */
            grace_ms: number;
            /**
             * @description The most delegations of one agent in a run.
             * @default 1000
             */
            max_agent_delegations: number;
            /**
             * @description The most agents between the user and a callee.
             * @default 10
             */
            max_chain: number;
            /**
             * @description The most delegations of all agents of a run together.
             * @default 3000
             */
            max_delegations: number;
            /**
             * @description How deep delegations may go below the agent that the user calls.
             * @default 5
             */
            max_depth: number;
            /**
             * @description The most delegations of one agent at once.
             * @default 3
             */
            max_fan_out: number;
            /**
             * @description The most progress reports of one delegation; later ones are dropped.
             * @default 1000
             */
            max_progress: number;
            /**
             * @description The most bytes that the records of one run may take in the store.
             * @default 67108864
             */
            max_record_bytes: number;
            /**
             * @description The most bytes of one answer.
             * @default 1048576
             */
            max_result_bytes: number;
            /**
             * @description The tokens that a person's yes adds to a run. None: as many as it began with.
             * @default null
             */
            more_tokens: number | null;
            /**
             * @description What is stopped when an agent spends more than it was granted: the whole run, or that call alone.
             * @default run
             * @enum {unknown}
             */
            overrun: "call" | "run";
            /**
             * @description The money of a run, in millionths of `currency`. None: there is no limit.
             * @default null
             */
            root_cost: number | null;
            /**
             * @description The time of a run.
             * @default 300000
             */
            root_time_ms: number;
            /**
             * @description The tokens of a run.
             * @default 1000000
             */
            root_tokens: number;
            /**
             * @description Owner scopes that every user may refer to.
             * @default [
             *       "public"
             *     ]
             */
            shared_scopes: string[];
            /**
             * @description The most money of one user's runs in a day (UTC), in millionths of `currency`.
             * @default null
             */
            user_cost_per_day: number | null;
            /**
             * @description The most tokens of one user's runs in a day (UTC), on all hubs that share a store.
             * @default null
             */
            user_tokens_per_day: number | null;
        };
        /**
         * Message
         * @description One message of a conversation.
         */
        Message: {
            /** @default 0 */
            at_ms: number;
            /**
             * @description The request that it belongs to.
             * @default
             */
            delegation: string;
            /**
             * @description What tools returned to its author, if that is the agent that reads it: nobody else sees them.
             * @default []
             */
            findings: components["schemas"]["ToolFinding"][];
            /**
             * @description Its author: `user`, or an agent.
             * @default
             */
            name: string;
            /** @enum {unknown} */
            role: "assistant" | "user";
            /**
             * @description The number of the record that holds its text, which is stored once. 0: it has none here.
             * @default 0
             */
            seq: number;
            text: string;
            /** @default 0 */
            tokens: number;
        };
        /**
         * MessageView
         * @description A message of the caller's conversation, redacted.
         */
        MessageView: {
            at_ms: number;
            delegation: string;
            name: string;
            role: string;
            seq: number;
            text: string;
            tokens: number;
        };
        /**
         * NamedAnswer
         * @description An answer to the question of an id.
         */
        NamedAnswer: {
            agree: boolean;
            /**
             * @description The name of the person, if the client speaks for several; it is recorded with the name of the client.
             * @default
             */
            by: string;
            /** @description The digest of what the person was shown. */
            digest: string;
            /**
             * @description The edited fields and their new values, if the question allows it: `objective`, `input`.
             * @default {}
             */
            edits: Record<string, never>;
            id: string;
            /** @default  */
            reason: string;
        };
        /**
         * Note
         * @description A known fact of a conversation, so that no agent asks for it or works it out again.
         */
        Note: {
            /**
             * @description The agent that stated it; empty: the user.
             * @default
             */
            by: string;
            /** @enum {unknown} */
            kind: "answer" | "constraint" | "decision" | "fact";
            text: string;
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
         * OutcomeBefore
         * @description How an earlier call to the same agent ended.
         */
        OutcomeBefore: {
            at_ms: number;
            code: components["schemas"]["Code"] | null;
            path: string;
            run: string;
            status: components["schemas"]["Status"];
        };
        /**
         * Phase
         * @description Closed lets calls through, open refuses them, probing has let one through and waits for it.
         * @enum {unknown}
         */
        Phase: "closed" | "open" | "probing";
        /**
         * Placing
         * @description Whether an agent should delegate a request or handle it itself.
         */
        Placing: {
            /** @description The deciding agent: the caller, or the agent the user asks. */
            agent: string;
            /** @description The capability, as named or as recognized in the text. */
            capability: string;
            /**
             * @description Probability that the text asks for it; null: it was named explicitly.
             * @default null
             */
            confidence: number | null;
            /**
             * @description `route`: delegate it; `local`: handle it without delegating.
             * @enum {unknown}
             */
            decision: "local" | "route";
            /**
             * @description The deciding reason: the first four favor delegating, the others oppose it.
             * @enum {unknown}
             */
            reason: "capability" | "data" | "equivalence" | "expertise" | "intent" | "latency" | "scope" | "simplicity";
            /** @description The reason as a sentence. */
            why: string;
        };
        /**
         * PolicyAnswer
         * @description What would happen to a call now, and with a draft.
         */
        PolicyAnswer: {
            changed: components["schemas"]["ChangedVerdict"][];
            draft: components["schemas"]["DraftExplanation"] | null;
            now: components["schemas"]["Explanation"];
        };
        /**
         * PolicyQuestion
         * @description A call that is not made: what would happen to it?
         */
        PolicyQuestion: {
            /** @default null */
            capability: string | null;
            /** @default null */
            deadline_ms: number | null;
            /**
             * @description The text of a draft team file; only its limits, budgets, breaker, rules and permissions count.
             * @default null
             */
            draft: string | null;
            /**
             * @description The caller: `user`, or an agent, as if a user had asked it first.
             * @default user
             */
            from: string;
            /** @default null */
            input: unknown;
            /** @default null */
            max_cost: number | null;
            /** @default null */
            max_tokens: number | null;
            /** @default  */
            objective: string;
            to: string;
            /** @default null */
            tools: string[] | null;
            /** @default someone */
            user: string;
        };
        /**
         * Priority
         * @description The order in which requests to a busy agent are served.
         * @enum {unknown}
         */
        Priority: "HIGH" | "LOW" | "NORMAL";
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
         * PublicCard
         * @description What others may know of an agent: what it is for, not how it is made.
         */
        PublicCard: {
            /** @default [] */
            capabilities: components["schemas"]["Capability"][];
            /** @default  */
            description: string;
            name: string;
            /** @default 1.0 */
            version: string;
        };
        /**
         * RankingLine
         * @description An agent in the ranking for a capability.
         */
        RankingLine: {
            agent: string;
            /** @description How long ago it was last heard of; null: never. */
            ago_ms: number | null;
            in_flight: number;
            latency_ms: number;
            /** @description 1: it is asked first. */
            place: number;
            /** @description Probability of a success; one half if nothing is known. */
            quality: number;
            tokens: number;
            /** @description The reason for its place, as a sentence. */
            why: string;
        };
        /**
         * Rate
         * @description How often an agent may be called, or a tool used: *calls* in each window of *seconds*.
         */
        Rate: {
            /** @description The most calls in a window. */
            calls: number;
            /** @description The length of a window. */
            seconds: number;
        };
        /**
         * RateUse
         * @description The rate limit of an agent, and how much of it is used on this hub.
         */
        RateUse: {
            /** @description Calls in the current window. */
            calls: number;
            limit: components["schemas"]["Rate"];
            /** @description How long calls are refused; 0: they are not. */
            wait_ms: number;
        };
        /**
         * Reason
         * @description The reason for a cancellation.
         */
        Reason: {
            /** @default  */
            reason: string;
        };
        /**
         * RecordedVerdict
         * @description What a guard decided about a recorded request, as far as the record shows it.
         */
        RecordedVerdict: {
            /**
             * @description The error code if it refused.
             * @default null
             */
            code: components["schemas"]["Code"] | null;
            /**
             * @description Whether the figures are in the record; if not, they are those of the present team file.
             * @default true
             */
            from_record: boolean;
            guard: string;
            /**
             * @description The reason, with figures.
             * @default
             */
            says: string;
            /**
             * @description `not_asked`: an earlier guard had refused; `unknown`: the record does not show it.
             * @enum {unknown}
             */
            verdict: "allow" | "ask" | "not_asked" | "refuse" | "rewrite" | "unknown";
        };
        /**
         * RecordLine
         * @description One committed record. Printed by `remit run --jsonl`, `runs watch --jsonl` and `runs export`.
         *
         *     With `remit run --jsonl` and `remit chat --jsonl` the text of agents is also streamed in pieces.
         */
        RecordLine: {
            /** @description Time in milliseconds since 1970. */
            at_ms: number;
            /** @description The content: an envelope, or the fields that `remit docs audit` lists for this kind. */
            body: unknown;
            /** @description Kind of record. */
            kind: components["schemas"]["Kind"];
            /** @description The run's id. */
            run: string;
            /** @enum {unknown} */
            schema: "remit.record/1";
            /** @description Row number in the record; 0: a `delta`, which is sent once and never stored. */
            seq: number;
            /** @description The session it belongs to. */
            session: string;
        };
        /**
         * RedactedView
         * @description Values of one kind in one field that were replaced by tokens; the values themselves are not here.
         */
        RedactedView: {
            count: number;
            /** @description Whether the callee saw the values nevertheless, because its team lets it see this kind or field. */
            in_clear: boolean;
            kind: string;
            place: string;
        };
        /**
         * Remit
         * @description What a callee may do and spend, for which user, and by which chain of callers.
         *
         *     `time_ms` is the time that was left when the remit was made: a clock reading is never sent. `tools` and `targets`
         *     bound what the callee's own card allows; None sets no further bound. `chain` holds the `agent@hub` addresses above
         *     the callee.
         */
        Remit: {
            /**
             * @description The agents between the user and the callee, as `agent@hub`.
             * @default []
             */
            chain: string[];
            /**
             * @description The most tokens of conversation that the callee is shown.
             * @default 4000
             */
            context_tokens: number;
            /**
             * @description The money that may be spent, in millionths of the team's currency; None: there is no limit.
             * @default null
             */
            cost: number | null;
            /** @description How deep the callee is; the agent that the user calls has 0. */
            depth: number;
            /** @description How deep delegations may go. */
            max_depth: number;
            /**
             * @description Whether the callee may call others.
             * @default true
             */
            may_delegate: boolean;
            /**
             * @description Its place in queues.
             * @default NORMAL
             */
            priority: components["schemas"]["Priority"];
            /**
             * @description The agents that may be called; None: no bound.
             * @default null
             */
            targets: string[] | null;
            /** @description The time that is left, in milliseconds. */
            time_ms: number;
            /** @description The tokens that may be spent. */
            tokens: number;
            /**
             * @description The tools that it may use, with conditions on their arguments; None: no bound.
             * @default null
             */
            tools: string[] | {
                [key: string]: {
                    [key: string]: string | number | boolean | (string | number | boolean)[] | components["schemas"]["ValueBounds"];
                } | {
                    [key: string]: string | number | boolean | (string | number | boolean)[] | components["schemas"]["ValueBounds"];
                }[];
            } | null;
            /** @description The user for whom everything is done. */
            user: string;
        };
        /**
         * RemitView
         * @description What was granted, and what it was carved from.
         */
        RemitView: {
            chain: string[];
            context_tokens: number;
            cost: components["schemas"]["CarvedMoney"];
            depth: number;
            max_depth: number;
            may_delegate: boolean;
            priority: components["schemas"]["Priority"];
            targets: string[] | null;
            time_ms: components["schemas"]["CarvedTime"];
            tokens: components["schemas"]["CarvedTokens"];
            /** @description None: no bound besides the callee's own card. */
            tools: string[] | null;
        };
        /**
         * Request
         * @description A request of an agent, or a person, to another agent, within a remit.
         */
        Request: {
            /**
             * @description Whether its target is an agent that is called, a tool that its origin uses with `input` as arguments, or, in a
             *     question to a person, an agent whose run needs more tokens (`tokens`) or whose model has no price (`price`).
             * @default call
             * @enum {unknown}
             */
            act: "answer" | "call" | "price" | "tokens" | "tool";
            /**
             * @description Digests of the questions about it that a person has approved, for the other hubs of the team; never sent.
             * @default []
             */
            approved: string[];
            /**
             * @description The code of the capability.
             * @default null
             */
            capability: string | null;
            /**
             * @description Which part of the conversation the callee sees.
             * @default null
             */
            context: components["schemas"]["ContextFilter"] | null;
            /**
             * @description An id of your own, by which its run can be found.
             * @default null
             */
            correlation: string | null;
            /**
             * @description When it was made, in milliseconds since 1970, for people to read; no deadline depends on it.
             * @default null
             */
            created_ms: number | null;
            /**
             * @description Files for the callee: their content as base64, or a URL that nobody here fetches. It gets no others, also not
             *     those of its caller.
             * @default []
             */
            files: components["schemas"]["File"][];
            /**
             * @description What the callee is told about the work so far.
             * @default null
             */
            handoff: components["schemas"]["Handoff"] | null;
            /**
             * @description Set where its target takes the conversation over, or has handed it over before: the agents behind the target that
             *     the conversation goes on to, one after another, without asking the target. Empty: the target answers itself.
             * @default null
             */
            handover: components["schemas"]["Handover"][] | null;
            /**
             * @description Short remarks for the callee.
             * @default []
             */
            hints: string[];
            id: string;
            /**
             * @description The full message or the capability's inputs.
             * @default null
             */
            input: unknown;
            /**
             * @description The objective: a short goal.
             * @default
             */
            objective: string;
            origin: string;
            /**
             * @description The delegation, and so the span, that asked for this one.
             * @default null
             */
            parent: string | null;
            /** @default null */
            parent_session: string | null;
            /**
             * @description Why this callee is asked; recorded, and part of traces.
             * @default
             */
            reason: string;
            /**
             * @description Who rephrased the request.
             * @default null
             */
            refined_by: string | null;
            remit: components["schemas"]["Remit"];
            /**
             * @description The request that this one repeats.
             * @default null
             */
            retry_of: string | null;
            /** @description The trace id of the tree of delegations that this is part of. */
            run?: string;
            /**
             * @description The callee's session; None starts a new one.
             * @default null
             */
            session: string | null;
            target: string;
            /**
             * @description Its parent span in a trace that began elsewhere (W3C); None: the run is its own trace.
             * @default null
             */
            traceparent: string | null;
            version: string;
            /**
             * @description The sender, if it came from elsewhere: a hub, or a client of this one.
             * @default null
             */
            via: string | null;
            /**
             * @description The part of the conversation that the filter selected.
             * @default null
             */
            view: components["schemas"]["View"] | null;
        };
        /**
         * Response
         * @description The outcome of a request: always a value, whatever happened.
         */
        Response: {
            /** @default 1.0 */
            agent_version: string;
            /** @default [] */
            artifacts: components["schemas"]["Artifact"][];
            /**
             * @description Whether the cache was consulted, and what it found: the same request, or one that asks for the same.
             * @default none
             * @enum {unknown}
             */
            cache: "hit" | "miss" | "none" | "similar";
            /** @default null */
            capability_version: string | null;
            /** @default null */
            confidence: number | null;
            /** @default 0 */
            duration_ms: number;
            /** @default null */
            fault: components["schemas"]["Fault"] | null;
            /**
             * @description Files that belong to the answer.
             * @default []
             */
            files: components["schemas"]["File"][];
            /**
             * @description What tools returned to the agent: kept for its own next turns in the session, and given to nobody else.
             * @default []
             */
            findings: components["schemas"]["ToolFinding"][];
            /** @default [] */
            finished: string[];
            /**
             * @description The agents to which the conversation was handed over, one after another: the last one answers next.
             * @default []
             */
            handover: components["schemas"]["Handover"][];
            /** @description The id of the request. */
            id: string;
            /** @default {} */
            metadata: Record<string, never>;
            /** @default [] */
            new_facts: string[];
            /**
             * @description The agents that the answer passed through, if the callee handed the request over.
             * @default []
             */
            path: string[];
            /** @default 0 */
            queued_ms: number;
            /** @default false */
            requires_followup: boolean;
            /** @default null */
            result: unknown;
            run?: string;
            /**
             * @description The session of the callee's conversation.
             * @default null
             */
            session: string | null;
            /** @default [] */
            sources: components["schemas"]["Source"][];
            status: components["schemas"]["Status"];
            /** @default  */
            summary: string;
            target: string;
            /** @default [] */
            tool_calls: string[];
            /**
             * @description Requested parts that are not in the result; naming any makes the answer partial.
             * @default []
             */
            unfinished: string[];
            /** @default {} */
            usage: components["schemas"]["Usage"];
            version: string;
            /**
             * @description How long its clock was stopped while a person was asked.
             * @default 0
             */
            waited_ms: number;
            /** @default [] */
            warnings: string[];
        };
        /**
         * RevealAsked
         * @description Who wants to read the personal values of a question.
         */
        RevealAsked: {
            /**
             * @description The name of the person, if the client speaks for several; it is recorded with the name of the client.
             * @default
             */
            by: string;
        };
        /**
         * RevealedQuestion
         * @description What a person is shown of a question, with personal values in clear.
         */
        RevealedQuestion: {
            id: string;
            /** @description As in the question, with values for the tokens, as far as they are kept. */
            view: components["schemas"]["ShownQuestion"];
        };
        /**
         * RunAct
         * @description What an act on a run has led to, without any text of the run.
         */
        RunAct: {
            /**
             * @description Why, if it did not succeed.
             * @default null
             */
            code: components["schemas"]["Code"] | null;
            /**
             * @description The delegation that was cancelled, if it was not the whole run.
             * @default
             */
            delegation: string;
            /**
             * @description `asked`: the process that executes the run has not confirmed yet. `over`: it had ended before. `refused`: the
             *     retry did not start. `running`, `waiting`: there is nothing to resume.
             * @enum {unknown}
             */
            outcome: "asked" | "cancelled" | "over" | "refused" | "resuming" | "retried" | "running" | "waiting";
            /** @description The run; after a retry, the new run. */
            run: string;
            /**
             * @description How the run, or the delegation, ended.
             * @default null
             */
            status: components["schemas"]["Status"] | null;
        };
        /**
         * RunBudget
         * @description A run in progress on this hub, and what it has left.
         */
        RunBudget: {
            agent: string;
            /** @description Money of the run, in millionths; null: there is no limit. */
            cost: number | null;
            /** @description Money that is neither spent nor reserved; null: no limit. */
            cost_left: number | null;
            /** @description Money spent so far, in millionths. */
            cost_used: number;
            /** @description Delegations in progress, with the root. */
            delegations: number;
            /** @description Tokens of the run. */
            granted: number;
            /** @description Tokens that are neither spent nor reserved for delegations in progress. */
            left: number;
            /** @description The run's id. */
            run: string;
            time_left_ms: number;
            used: number;
            user: string;
        };
        /**
         * RunCancel
         * @description What is to be cancelled, and why.
         */
        RunCancel: {
            /**
             * @description The path of a delegation, to cancel it and everything below it; None: the whole run.
             * @default null
             */
            delegation: string | null;
            /**
             * @description The reason. It is recorded.
             * @default
             */
            reason: string;
        };
        /**
         * RunLine
         * @description A run in one line.
         */
        RunLine: {
            agent: string;
            /**
             * @description When it ended, or when it began if it has not ended.
             * @default 0
             */
            changed_ms: number;
            /**
             * @description The error, if it did not succeed.
             * @default null
             */
            code: components["schemas"]["Code"] | null;
            /**
             * @description The correlation id that links it to other runs; else its own id.
             * @default
             */
            correlation: string;
            /**
             * @description Their cost in millionths of the team's currency, as far as prices are known.
             * @default null
             */
            cost: number | null;
            /**
             * @description How long it took, once it has ended.
             * @default null
             */
            duration_ms: number | null;
            objective: string;
            /**
             * @description The first 200 characters of its answer.
             * @default
             */
            preview: string;
            /**
             * @description Questions to people that are not answered yet.
             * @default 0
             */
            questions: number;
            run: string;
            /** @default  */
            session: string;
            started_ms: number;
            /**
             * @description `silent`: the process that executes it has shown no sign of life for some seconds.
             * @enum {unknown}
             */
            state: "finished" | "running" | "silent" | "waiting";
            /**
             * @description How it ended.
             * @default null
             */
            status: components["schemas"]["Status"] | null;
            /**
             * @description Tokens spent, once it has ended.
             * @default null
             */
            tokens: number | null;
            user: string;
            /**
             * @description The hub or client that sent it; empty: it started here.
             * @default
             */
            via: string;
        };
        /**
         * RunList
         * @description Runs, newest first.
         */
        RunList: {
            /**
             * @description The value of `before` for the next page; absent at the end. A page may hold fewer runs than `limit`, or none, and
             *     still have a next one: only so many are read for each.
             * @default null
             */
            next: string | null;
            runs: components["schemas"]["RunLine"][];
            /**
             * @description How many runs were read to find these.
             * @default 0
             */
            searched: number;
        };
        /**
         * RunResume
         * @description The body of a request to resume a run, which says nothing more.
         */
        RunResume: Record<string, never>;
        /**
         * RunRetry
         * @description What the new run may spend; None: what the first one had. It is never more than the hub grants.
         */
        RunRetry: {
            /** @default null */
            deadline_ms: number | null;
            /**
             * @description Money in millionths of the team's currency.
             * @default null
             */
            max_cost: number | null;
            /** @default null */
            max_tokens: number | null;
        };
        /**
         * RunTable
         * @description A run with its delegations in columns.
         */
        RunTable: {
            /** @description The number of delegations of the run, also of those that did not change. */
            count: number;
            /** @description The currency of all costs, which are estimates. */
            currency: string;
            /** @description With `after`, only those that changed. */
            delegations: components["schemas"]["DelegationTable"];
            /** @description The time at the server, in milliseconds since 1970. */
            now_ms: number;
            run: components["schemas"]["RunLine"];
            /** @description The number of the newest record that is counted: the value of `after` for the changes since. */
            seq: number;
        };
        /**
         * RunTree
         * @description The delegations of a run, and the outcome of each.
         */
        RunTree: {
            delegations: components["schemas"]["Delegation"][];
            run: string;
        };
        /**
         * RunWorkflows
         * @description The workflows of a run, the outermost first; empty if the run followed none.
         */
        RunWorkflows: {
            run: string;
            workflows: components["schemas"]["WorkflowGraph"][];
        };
        /**
         * SaidView
         * @description A progress report, or a notice to the operator.
         */
        SaidView: {
            at_ms: number;
            /** @default null */
            code: components["schemas"]["Code"] | null;
            /** @enum {unknown} */
            kind: "notice" | "progress";
            seq: number;
            text: string;
        };
        /**
         * Series
         * @description Figures over time.
         */
        Series: {
            /** @description The begin of each hour or day (UTC). */
            at_ms: number[];
            /** @description Whether the whole record has been read. If not, ask again: each request reads on. */
            complete: boolean;
            /** @description Currency of costs, which are estimates. */
            currency: string;
            /** @description Since when the figures are whole; 0: from the beginning of the record. */
            from_ms: number;
            lines: components["schemas"]["SeriesLine"][];
            /** @enum {unknown} */
            step: "day" | "hour";
            /** @description The time of the newest record that has been read. */
            through_ms: number;
            /** @enum {unknown} */
            what: "cost" | "latency" | "refusals" | "runs" | "success" | "tokens";
        };
        /**
         * SeriesLine
         * @description One line of a series.
         */
        SeriesLine: {
            /** @description `share`, `p50_ms`, `p95_ms`, `prompt`, `completion`, `cost`, `runs`, … */
            name: string;
            /** @description One value for each time; null: nothing is known. */
            values: (number | null)[];
        };
        /**
         * SessionLine
         * @description A conversation of a user with an agent.
         */
        SessionLine: {
            agent: string;
            first_ms: number;
            /** @description When its newest run ended, or began if it has not ended. */
            last_ms: number;
            /** @description The number of requests and answers. */
            messages: number;
            /** @description The objective of its newest run. */
            objective: string;
            /** @description Its newest run. */
            run: string;
            runs: number;
            session: string;
            user: string;
            /** @description The peer or client that sent the newest request; empty if it came from here. */
            via: string;
        };
        /**
         * SessionList
         * @description A page of conversations, the one with the newest request first.
         */
        SessionList: {
            /** @description The value of `before` for the next page; None if there is none. A page may be short although there is one. */
            next: number | null;
            sessions: components["schemas"]["SessionLine"][];
        };
        /**
         * SessionMessage
         * @description A request or an answer of a conversation, as it is stored: personal values are tokens.
         */
        SessionMessage: {
            at_ms: number;
            /** @description Why it did not succeed. */
            code: components["schemas"]["Code"] | null;
            /** @description The path of the delegation in its run. */
            delegation: string;
            /** @description Whether the text is longer than what is shown; its delegation has all of it. */
            is_cut: boolean;
            /** @description Who speaks: the caller of a request, the agent that answers. */
            name: string;
            /** @enum {unknown} */
            role: "assistant" | "user";
            run: string;
            seq: number;
            /** @description How it ended, for an answer. */
            status: components["schemas"]["Status"] | null;
            text: string;
        };
        /**
         * SessionView
         * @description A conversation: its newest messages, oldest first, and its notes.
         */
        SessionView: {
            agent: string;
            messages: components["schemas"]["SessionMessage"][];
            /** @description The value of `before` for the page of earlier messages; None if there are none. */
            next: number | null;
            notes: components["schemas"]["Note"][];
            session: string;
            user: string;
        };
        /**
         * SeveralAnswers
         * @description Answers to several questions.
         */
        SeveralAnswers: {
            answers: components["schemas"]["NamedAnswer"][];
        };
        /**
         * ShownFile
         * @description A file of the request.
         */
        ShownFile: {
            /** @description The SHA-256 of its content; empty for a URL. */
            digest: string;
            /** @description Whether the preview is all of it. */
            is_whole: boolean;
            media_type: string;
            name: string;
            /** @description Its text, or the first part of it; empty if it is no text. */
            preview: string;
            /** @description Its bytes; 0 for a URL. */
            size: number;
            url: string;
        };
        /**
         * ShownPart
         * @description A part of the request, as a person reads it.
         */
        ShownPart: {
            /** @description The whole of it; a value as JSON. */
            text: string;
            /** @description What it is: `objective`, `input`, `handoff`. */
            title: string;
        };
        /**
         * ShownQuestion
         * @description What a person is shown of a question.
         */
        ShownQuestion: {
            /** @description The files that would be sent. */
            files: components["schemas"]["ShownFile"][];
            /** @description What would be sent. */
            parts: components["schemas"]["ShownPart"][];
            /** @description Who wants what from whom. */
            sentence: string;
        };
        /**
         * ShownView
         * @description What the callee was shown, as it is recorded; it got tokens, or the values that its team lets it see.
         */
        ShownView: {
            handoff: components["schemas"]["Handoff"] | null;
            hints: string[];
            input: unknown;
            messages: components["schemas"]["MessageView"][];
            notes: components["schemas"]["Note"][];
            objective: string;
            reason: string;
            /** @description Messages that were left out because its session had them already. */
            seen_before: number;
            /** @description The kinds of personal data that it sees in clear, by its present card. */
            sees: string[];
            /** @description The beginning of the summary of the conversation. */
            summary: string;
            /** @description The agents that it could call, likewise. */
            targets: string[];
            /** @description The tokens of all of it; None: no conversation was passed on, so nothing was counted. */
            tokens: number | null;
            /** @description The tools that it could use, by its present card and its remit. */
            tools: string[];
            /** @description The beginning of the description of the workspace. */
            workspace: string;
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
         * Source
         * @description A document or record, and its owner.
         */
        Source: {
            owner_scope: string;
            /** @default null */
            relevance: number | null;
            source_id: string;
        };
        /**
         * SpendRow
         * @description What one user, agent, capability, day or model spent, and how it went.
         */
        SpendRow: {
            /** @description Tokens of `prompt` that providers read from their cache. */
            cached: number;
            /** @description Delegations that were cancelled. */
            cancelled: number;
            /** @description Failures and refusals by error code. */
            codes: {
                [key: string]: number;
            };
            /** @description Tokens written by the agents themselves. */
            completion: number;
            /** @description Estimated cost of the tokens whose price is known; null: no price is known. */
            cost: number | null;
            /** @description Delegations that ended, including refused ones. */
            delegations: number;
            /** @description Delegations that failed or ran out of time. */
            failed: number;
            /** @description The user, agent, capability, day (`2026-11-17`, UTC) or model. */
            key: string;
            /** @description Tokens spent beyond a grant. */
            overrun: number;
            /** @description Half of the delegations took no longer, to within 9 %. */
            p50_ms: number | null;
            /** @description 95 % of the delegations took no longer, to within 9 %. */
            p95_ms: number | null;
            /** @description Tokens read by the agents themselves. */
            prompt: number;
            /** @description Delegations that were refused. */
            refused: number;
            /** @description Requests of users that ended, including refused ones. */
            runs: number;
            /** @description Delegations that ended with a success, in full or in part. */
            succeeded: number;
            /** @description `prompt` and `completion`, without the agents below. */
            tokens: number;
            /** @description Tokens with those of all agents below, which count there again. */
            total_tokens: number;
            /** @description Tokens of `tokens` that are not in `cost`: no price is known. */
            unpriced_tokens: number;
        };
        /**
         * SpendTable
         * @description Spend by user, agent, capability, day or model.
         */
        SpendTable: {
            /** @enum {unknown} */
            by: "agent" | "capability" | "day" | "model" | "user";
            /** @description Whether the whole record has been read. If not, ask again: each request reads on. */
            complete: boolean;
            /** @description Currency of all costs, which are estimates. */
            currency: string;
            /** @description Since when the figures are whole; 0: from the beginning of the record. */
            from_ms: number;
            /** @description The value of `after` for the next page; null: there is none. */
            next: number | null;
            /** @description Most tokens first; days in order. */
            rows: components["schemas"]["SpendRow"][];
            /** @description Begin of the period, at a whole hour or day (UTC). */
            since_ms: number;
            /** @description The time of the newest record that has been read. */
            through_ms: number;
            /** @description All rows together, including those on other pages. */
            totals: components["schemas"]["SpendRow"];
            /** @description Time in milliseconds since 1970. */
            until_ms: number;
        };
        /**
         * Status
         * @description How a delegation ended.
         * @enum {unknown}
         */
        Status: "cancelled" | "failed" | "partial" | "refused" | "success" | "timeout";
        /**
         * StepAttempt
         * @description One delegation of a step: the first, or a retry.
         */
        StepAttempt: {
            agent: string;
            /** @description Why it did not succeed. */
            code: components["schemas"]["Code"] | null;
            delegation: string;
            duration_ms: number;
            started_ms: number;
            /** @enum {unknown} */
            state: "asking" | "cancelled" | "failed" | "not begun" | "not done" | "partial" | "planned" | "refused" | "running" | "skipped" | "success" | "timeout" | "unknown" | "waiting";
        };
        /**
         * Struck
         * @description A personal or secret value in a request; the value itself is not included.
         */
        Struck: {
            /** @description Kind of value: `EMAIL`, `IBAN`. */
            kind: string;
            /** @description Location in the request: `objective`, `input.customer.iban`. */
            place: string;
            /** @description Whether the callee sees the original value. */
            shown: boolean;
        };
        /**
         * Submission
         * @description A request that is still to be received; every `Request` reads as one.
         *
         *     A hub sends its remit. A client has none: it names the user, and the limits that it wants; the hub's defaults apply
         *     to the rest.
         */
        Submission: {
            /**
             * @description The code of the capability.
             * @default null
             */
            capability: string | null;
            /** @default [] */
            chain: string[];
            /**
             * @description Which part of the conversation the callee sees.
             * @default null
             */
            context: components["schemas"]["ContextFilter"] | null;
            /**
             * @description The most tokens of conversation that the callee is shown.
             * @default null
             */
            context_tokens: number | null;
            /**
             * @description An id of your own, by which its run can be found.
             * @default null
             */
            correlation: string | null;
            /** @default null */
            created_ms: number | null;
            /**
             * @description The time that it has, in milliseconds.
             * @default null
             */
            deadline_ms: number | null;
            /**
             * @description The depth of the callee, from a sender without a remit; never less than the length of its chain.
             * @default 0
             */
            depth: number;
            /**
             * @description Files for the callee: their content as base64, or a URL that nobody here fetches. It gets no others, also not
             *     those of its caller.
             * @default []
             */
            files: components["schemas"]["File"][];
            /**
             * @description What the callee is told about the work so far.
             * @default null
             */
            handoff: components["schemas"]["Handoff"] | null;
            /**
             * @description Who is to answer: an agent that the target may hand the conversation over to, or the target itself. None: whoever
             *     is in charge of the session.
             * @default null
             */
            handover: string | null;
            /**
             * @description Short remarks for the callee.
             * @default []
             */
            hints: string[];
            /**
             * @description The sender's own id: if it is sent again with the same content, it is executed once. None: every
             *     submission is new.
             * @default null
             */
            id: string | null;
            /**
             * @description The full message or the capability's inputs.
             * @default null
             */
            input: unknown;
            /**
             * @description The most money that it may spend, in millionths of the team's currency.
             * @default null
             */
            max_cost: number | null;
            /**
             * @description How deep delegations below it may go.
             * @default null
             */
            max_depth: number | null;
            /**
             * @description The most tokens that it may spend.
             * @default null
             */
            max_tokens: number | null;
            /**
             * @description Whether it may call others.
             * @default true
             */
            may_delegate: boolean;
            /**
             * @description The objective: a short goal.
             * @default
             */
            objective: string;
            /** @default user */
            origin: string;
            /** @default null */
            parent: string | null;
            /** @default null */
            parent_session: string | null;
            /**
             * @description Its place in queues; never above its caller's.
             * @default null
             */
            priority: components["schemas"]["Priority"] | null;
            /**
             * @description Why this callee is asked; recorded, and part of traces.
             * @default
             */
            reason: string;
            /**
             * @description Who rephrased the request.
             * @default null
             */
            refined_by: string | null;
            /** @default null */
            remit: components["schemas"]["Remit"] | null;
            /**
             * @description The request that this one repeats.
             * @default null
             */
            retry_of: string | null;
            run?: string;
            /**
             * @description The callee's session; None starts a new one.
             * @default null
             */
            session: string | null;
            target: string;
            /**
             * @description The agents that it and those below it may call; None: all that it may.
             * @default null
             */
            targets: string[] | null;
            /**
             * @description The tools that it may use: names, or by name conditions on the arguments, as of a rule's `where`:
             *     `{"pay": {"amount": "<= 100", "to": ["bob"]}}`. All that its callers set holds, too. None: all of its own.
             * @default null
             */
            tools: string[] | {
                [key: string]: {
                    [key: string]: string | number | boolean | (string | number | boolean)[] | components["schemas"]["ValueBounds"];
                } | {
                    [key: string]: string | number | boolean | (string | number | boolean)[] | components["schemas"]["ValueBounds"];
                }[];
            } | null;
            /** @default null */
            traceparent: string | null;
            /** @default null */
            user: string | null;
            /**
             * @default 1.0
             * @enum {string}
             */
            version: "1.0";
            /** @default null */
            via: string | null;
            /** @default null */
            view: components["schemas"]["View"] | null;
        };
        /**
         * Tampering
         * @description What was done to the record.
         * @enum {unknown}
         */
        Tampering: "anchor forged" | "anchor mismatch" | "break announced" | "checkpoint forged" | "checkpoint missing" | "checkpoint row missing" | "checkpoints disagree" | "dated ahead" | "deleted" | "edited" | "inserted" | "key changed" | "key signed nothing" | "removal forged" | "reordered" | "rewritten" | "rolled back" | "truncated" | "unsigned";
        /**
         * TeamText
         * @description A team file as it is on the disk now.
         */
        TeamText: {
            file: string;
            text: string;
        };
        /**
         * TeamView
         * @description The limits and permissions in force.
         */
        TeamView: {
            agents: components["schemas"]["AgentPolicy"][];
            breaker: components["schemas"]["BreakerSettings"];
            /** @description The team file as it is on the disk, for who may `control` all agents; None: there is none, or they may not. */
            file: components["schemas"]["TeamText"] | null;
            limits: components["schemas"]["Limits"];
            tools: string[];
        };
        /**
         * ToolFinding
         * @description What a tool, or an agent that was asked as one, returned to an agent.
         */
        ToolFinding: {
            /** @default null */
            arguments: unknown;
            /**
             * @description Tokens in it that stand for values which the agent itself had; set by the hub.
             * @default []
             */
            hidden: string[];
            /** @default  */
            result: string;
            tool: string;
        };
        /**
         * ToolUseView
         * @description A use of a tool.
         */
        ToolUseView: {
            at_ms: number;
            duration_ms: number;
            fault: components["schemas"]["Fault"] | null;
            input: unknown;
            replayed: boolean;
            revealed: string[];
            seq: number;
            tool: string;
        };
        /**
         * Usage
         * @description Tokens spent by a callee and all below it, and their cost; `overrun` is what went beyond its grant.
         */
        Usage: {
            /** @default 0 */
            cache_read: number;
            /** @default 0 */
            cache_write: number;
            /** @default 0 */
            completion: number;
            /** @default 0 */
            cost: number;
            /** @default false */
            estimated: boolean;
            /** @default 0 */
            overrun: number;
            /** @default 0 */
            priced: number;
            /** @default 0 */
            prompt: number;
        };
        /**
         * UserDay
         * @description What a user has spent of the day.
         */
        UserDay: {
            /** @description `cost_per_user_per_day` of the team file, in millionths; null: there is no limit. */
            cost_limit: number | null;
            /** @description Money that runs in progress on this hub hold besides it. */
            cost_reserved: number;
            /** @description Money of the delegations that ended, as recorded, in millionths. */
            cost_spent: number;
            /** @description `per_user_per_day` of the team file; null: there is no limit. */
            limit: number | null;
            /** @description Tokens that runs in progress on this hub hold besides those. */
            reserved: number;
            /** @description Tokens of the delegations of this day (UTC) that ended, as recorded. */
            spent: number;
            user: string;
        };
        /**
         * ValueBounds
         * @description What a value has to be: all that is set holds.
         */
        ValueBounds: {
            /**
             * @description More than this.
             * @default null
             */
            above: number | null;
            /**
             * @description This or more.
             * @default null
             */
            at_least: number | null;
            /**
             * @description This or less.
             * @default null
             */
            at_most: number | null;
            /**
             * @description Less than this.
             * @default null
             */
            below: number | null;
            /**
             * @description One of these; `*` in a text matches anything.
             * @default null
             */
            in: (string | number | boolean)[] | null;
            /**
             * @description None of these; `*` in a text matches anything.
             * @default null
             */
            not_in: (string | number | boolean)[] | null;
            /**
             * @description A path inside one of these folders, wherever `..` in it leads.
             * @default null
             */
            under: string[] | null;
        };
        /**
         * VerificationProgress
         * @description How far a verification has come.
         */
        VerificationProgress: {
            of: number;
            row: number;
            started_ms: number;
        };
        /**
         * VerifiedRecord
         * @description The result of a verification.
         */
        VerifiedRecord: {
            /** @description Whether all findings are breaks that a hub announced, such as a new key. */
            announced: boolean;
            at_ms: number;
            /** @description The number of valid checkpoints. */
            checkpoints: number;
            /** @description Each place where the record was changed, at most 100. */
            findings: components["schemas"]["AuditFinding"][];
            /** @description Public keys that signed it. Compare them with a copy kept elsewhere. */
            keys: string[];
            ok: boolean;
            /** @description Rows whose texts were removed on purpose, as signed statements in the record say. */
            removed: number;
            rows: number;
            /** @description The row up to which the server verified the record before; 0: all of it was verified now. */
            since: number;
            /** @description The result in words, as `remit audit verify` prints it. */
            text: string;
            took_ms: number;
            /** @description Records of several hubs that are durable and not in the chain yet. */
            unchained: number;
            /** @description Rows after the last checkpoint. Truncation there would go unnoticed. */
            unprotected: number;
        };
        /**
         * View
         * @description What a callee sees of the conversation in which it is called: no tool calls, no reasoning, nothing twice.
         */
        View: {
            /** @default [] */
            known: components["schemas"]["Note"][];
            /** @default [] */
            messages: components["schemas"]["Message"][];
            /**
             * @description Numbers of messages that are left out because the callee's session was shown them before.
             * @default []
             */
            seen: number[];
            /** @default  */
            summary: string;
            /**
             * @description The tokens of everything that the callee is given to read: this view and the task.
             * @default 0
             */
            tokens: number;
            /** @default  */
            workspace: string;
        };
        /**
         * WaitingApproval
         * @description A question that waits for a person.
         */
        WaitingApproval: {
            asked_ms: number;
            capability: string | null;
            /** @description The path of the call in the run. */
            delegation: string;
            /** @description The digest of what is shown. An answer must name it, so that it cannot mean anything else. */
            digest: string;
            /** @description The fields that may be edited before approving. */
            editable: string[];
            expires_ms: number;
            /** @description The form that `input` belongs to: a JSON Schema of a flat object; None: there is none. */
            form: Record<string, never> | null;
            id: string;
            /** @description Whether the client may answer it. */
            may_answer: boolean;
            objective: string;
            origin: string;
            question: string;
            /** @description The rule of the team file that asks; None: another guard of the hub. */
            rule: components["schemas"]["DeciderRule"] | null;
            run: string;
            /** @description Who wants what from whom. */
            sentence: string;
            target: string;
            user: string;
        };
        /**
         * WorkflowGraph
         * @description The steps of one workflow, in the order of their results in the answer.
         */
        WorkflowGraph: {
            agent: string;
            /** @description The delegation of the agent that executes it. */
            delegation: string;
            name: string;
            /** @description Whether the plan is on record. If not, the steps are known from the answer, without their dependencies. */
            planned: boolean;
            /** @enum {unknown} */
            state: "asking" | "cancelled" | "failed" | "not begun" | "not done" | "partial" | "planned" | "refused" | "running" | "skipped" | "success" | "timeout" | "unknown" | "waiting";
            steps: components["schemas"]["WorkflowStep"][];
        };
        /**
         * WorkflowStep
         * @description A step and what has become of it.
         */
        WorkflowStep: {
            /** @description The steps that must have ended before. */
            after: string[];
            /** @description The agent that was asked last, or will be; empty: whoever offers the capability. */
            agent: string;
            attempts: components["schemas"]["StepAttempt"][];
            capability: string;
            /** @description Agents that are asked in turn if it fails. */
            fallback: string[];
            name: string;
            optional: boolean;
            /** @enum {unknown} */
            state: "asking" | "cancelled" | "failed" | "not begun" | "not done" | "partial" | "planned" | "refused" | "running" | "skipped" | "success" | "timeout" | "unknown" | "waiting";
            title: string;
            /** @description The condition under which it is done; empty: always. */
            when: string;
            /** @description Why it was skipped or did not succeed. */
            why: string;
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
