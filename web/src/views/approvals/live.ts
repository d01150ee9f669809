// What waits for a person, kept up to date.

import { type QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { get } from "@/api/client";
import { useConsole } from "@/api/console";
import { follow } from "@/api/stream";
import type { ApprovalList } from "@/views/approvals/model";

// A question is in the inbox a moment after it is recorded.
const SOON_MS = 700;
// For the count; and an answer to a run that no hub executes now is not in any stream.
const AGAIN_MS = 5_000;

let users = 0;
let end: (() => void) | undefined;

/** Follow the questions and answers of all runs, as long as a view shows them. */
function subscribe(queries: QueryClient): () => void {
  users += 1;
  if (users === 1) {
    const reload = () => void queries.invalidateQueries({ queryKey: ["approvals"] });
    let timer: ReturnType<typeof setTimeout> | undefined;
    const leave = follow(
      "/v1/events",
      { kinds: "approval" },
      {
        onEvent: ({ type }) => {
          if (type !== "approval") return;
          reload();
          clearTimeout(timer);
          timer = setTimeout(reload, SOON_MS);
        },
        // What happened while there was no connection is not told.
        onState: (connected) => (connected ? reload() : undefined),
      },
    );
    end = () => {
      clearTimeout(timer);
      leave();
    };
  }
  return () => {
    users -= 1;
    if (users === 0) end?.();
  };
}

/** What waits for a person: told at once where it is shown, and looked up now and then for the count in the frame. */
export function useApprovals({ live }: { live: boolean }) {
  const operator = useConsole().views.includes("operator");
  const queries = useQueryClient();
  useEffect(() => (operator && live ? subscribe(queries) : undefined), [operator, live, queries]);
  return useQuery({
    queryKey: ["approvals"],
    queryFn: ({ signal }) => get<ApprovalList>("/v1/approvals", undefined, signal),
    enabled: operator,
    refetchInterval: AGAIN_MS,
    refetchIntervalInBackground: true,
  });
}
