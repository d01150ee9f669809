// How many drafts and questions of shared agents wait for the user: for the navigation and the title of the tab.

import { useConsole } from "@/api/console";
import { waitingFor } from "@/views/chat/model";
import { watchForNotices } from "@/views/chat/notices";
import { useShared } from "@/views/chat/store";

watchForNotices();

export function useWaitingCount(): number {
  const chats = useConsole().views.includes("chat");
  return useShared(
    ({ runs }) =>
      [...runs.values()].reduce((sum, { view, stale }) => sum + (stale ? 0 : waitingFor(view)), 0),
    chats,
  );
}
