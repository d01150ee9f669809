// How many decisions wait for a person: for the navigation and the title of the tab.

import { useApprovals } from "@/views/approvals/live";

export function usePendingCount(): number {
  const { data } = useApprovals({ live: false });
  return data?.waiting.filter((each) => each.may_answer).length ?? 0;
}
