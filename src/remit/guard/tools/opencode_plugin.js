// Tells the guard of Remit what the agents of OpenCode do, and asks it before one of them starts another.
// Written by `remit guard opencode`; `remit guard opencode --undo` removes it.
const SOCKET = "@SOCKET@";
const SILENT = "the guard does not answer, so no sub-agent may start. To start it: remit guard serve";
// A person may take an hour to answer.
const ANSWER_MS = 3_540_000;
const METER_MS = 8_000;

async function tell(event, limit) {
  const reply = await fetch("http://guard/hooks/opencode", {
    unix: SOCKET,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(event),
    signal: AbortSignal.timeout(limit),
  });
  if (!reply.ok) throw new Error(`the guard answered ${reply.status}`);
  return reply.json();
}

function spent({ input = 0, output = 0, reasoning = 0, cache = {} }) {
  return { input: input + (cache.write ?? 0), output: output + reasoning, cached: cache.read ?? 0 };
}

export const RemitGuard = async ({ client, directory }) => {
  const meter = (event) => tell(event, METER_MS).catch(() => ({})); // what only meters never stops the tool
  return {
    event: async ({ event }) => {
      const { sessionID: session, info } = event.properties ?? {};
      if (event.type === "session.created")
        await meter({ event: "created", session: info.id, parent: info.parentID ?? "", directory });
      else if (event.type === "session.deleted") await meter({ event: "deleted", session: info.id });
      else if (event.type === "session.idle") await meter({ event: "idle", session });
      else if (event.type === "message.updated" && info.role === "assistant" && info.tokens)
        await meter({ event: "message", session: info.sessionID, message: info.id, tokens: spent(info.tokens) });
    },
    "tool.execute.before": async ({ tool, sessionID: session, callID: call }, { args }) => {
      if (tool !== "task") {
        const { stopped } = await meter({ event: "tool", session });
        if (!stopped) return;
        await client.session.abort({ path: { id: session } }).catch(() => {});
        throw new Error(`Remit: ${stopped}`);
      }
      const about = { kind: args.subagent_type ?? "general", title: args.description ?? "", task: args.prompt ?? "" };
      const { refused } = await tell({ event: "spawn", session, call, ...about }, ANSWER_MS).catch(() => ({
        refused: SILENT,
      }));
      if (refused) throw new Error(`Remit: ${refused}`);
    },
  };
};
