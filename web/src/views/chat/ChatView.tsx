// Conversations with shared agents: the list of them, and the one that is open.

import { useState } from "react";
import { useLocation, useParams } from "wouter";
import { KeysDialog } from "@/look/parts";
import { useKeys } from "@/look/keys";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { Conversation } from "@/views/chat/Conversation";
import { ConversationList } from "@/views/chat/ConversationList";
import { waitingFor } from "@/views/chat/model";
import { NewConversation } from "@/views/chat/NewConversation";
import { useShared } from "@/views/chat/store";

export default function ChatView() {
  const { run } = useParams<{ run?: string }>();
  const [, go] = useLocation();
  const [keysShown, setKeysShown] = useState(false);
  const next = useShared(({ runs }) => {
    const waiting = [...runs.values()].filter(({ view, stale }) => !stale && waitingFor(view) > 0);
    const ids = waiting.map(({ view }) => view.id);
    return ids[(ids.indexOf(run ?? "") + 1) % Math.max(ids.length, 1)] ?? null;
  });
  useKeys({
    n: () => go("/chat/new"),
    w: () => (next === null ? undefined : go(`/chat/${next}`)),
    "/": () => document.getElementById("chat-search")?.focus(),
    "?": () => setKeysShown(true),
  });
  const place = run === undefined ? "at-list" : "at-one";
  return (
    <div className={`chat ${place}`}>
      <div className="unseen">
        <ViewHead title={texts.shell.views.chat} />
      </div>
      <ConversationList chosen={run} />
      {run === undefined || run === "new" ? <NewConversation /> : <Conversation key={run} id={run} />}
      <KeysDialog open={keysShown} onClose={() => setKeysShown(false)} keys={texts.chat.keys} />
    </div>
  );
}
