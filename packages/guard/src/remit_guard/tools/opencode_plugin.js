// Tells the guard of Remit what the agents of OpenCode do, and asks it before one uses a tool or starts another.
// Written by `remit guard opencode`; `remit guard opencode --undo` removes it.
import { existsSync } from "node:fs";

const SOCKET = "@SOCKET@";
// This file is there while the team has rules about tools.
const JUDGED = "@JUDGED@";
const SILENT = "the guard does not answer, so no sub-agent may start. To start it: remit guard serve";
const UNJUDGED = "the guard does not answer, and the team has rules about tools. To start it: remit guard serve";
// A person may take an hour to answer. Meanwhile the guard sends spaces; one that hangs sends nothing.
const ANSWER_MS = 3_540_000;
const SILENCE_MS = 60_000;
const METER_MS = 8_000;

async function send(event, limit) {
  const silent = new AbortController();
  const giveUp = () => silent.abort(new Error("the guard does not answer"));
  let silence = setTimeout(giveUp, SILENCE_MS);
  try {
    const reply = await fetch("http://guard/hooks/opencode", {
      unix: SOCKET,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(event),
      signal: AbortSignal.any([silent.signal, AbortSignal.timeout(limit)]),
    });
    if (!reply.ok) throw new Error(`the guard answered ${reply.status}`);
    const decoder = new TextDecoder();
    let text = "";
    for await (const part of reply.body) {
      clearTimeout(silence);
      silence = setTimeout(giveUp, SILENCE_MS);
      text += decoder.decode(part, { stream: true });
    }
    return JSON.parse(text);
  } finally {
    clearTimeout(silence);
  }
}

function spent({ input = 0, output = 0, reasoning = 0, cache = {} }) {
  return { input: input + (cache.write ?? 0), output: output + reasoning, cached: cache.read ?? 0 };
}

const isSpent = (info) => info.role === "assistant" && info.tokens && Object.values(spent(info.tokens)).some(Boolean);

export const RemitGuard = async ({ client, directory }) => {
  const parents = new Map(); // the parent of each session; empty: the session is the user's
  const roots = new Set(); // sessions of the user that the guard was told of
  let previous = Promise.resolve();

  const parentOf = async (session) => {
    if (!parents.has(session)) {
      const { data } = await client.session.get({ path: { id: session } });
      parents.set(session, data?.parentID ?? "");
    }
    return parents.get(session);
  };
  const rootOf = async (session) => {
    const parent = await parentOf(session);
    return parent ? rootOf(parent) : session;
  };
  const tell = async (event, limit) => {
    const root = await rootOf(event.session);
    roots.add(root);
    return send({ directory, root, parent: await parentOf(event.session), ...event }, limit);
  };
  const message = ({ id, sessionID: session, tokens, time, providerID, modelID }) => {
    const model = modelID ? `${providerID}:${modelID}` : "";
    return { event: "message", session, message: id, tokens: spent(tokens), model, at_ms: time?.created ?? 0 };
  };
  // A guard that was started after the session knows nothing of what was spent before.
  const tellEarlier = async (session) => {
    const { data: messages } = await client.session.messages({ path: { id: session } });
    for (const { info } of messages ?? []) if (isSpent(info)) await tell(message(info), METER_MS);
    const { data: children } = await client.session.children({ path: { id: session } });
    for (const { id } of children ?? []) await tellEarlier(id);
  };
  // What only meters never stops the tool. It is told in the order in which it happened.
  const meter = (event) => {
    const answer = previous.then(async () => {
      const answered = await tell(event, METER_MS);
      if (answered.is_new) await tellEarlier(await rootOf(event.session));
      return answered;
    });
    previous = answer.catch(() => ({}));
    return previous;
  };

  return {
    event: async ({ event }) => {
      const { sessionID: session, info } = event.properties ?? {};
      if (event.type === "session.created" || event.type === "session.deleted")
        parents.set(info.id, info.parentID ?? "");
      if (event.type === "session.created") await meter({ event: "created", session: info.id });
      else if (event.type === "session.deleted") await meter({ event: "deleted", session: info.id });
      else if (event.type === "session.idle") await meter({ event: "idle", session });
      else if (event.type === "message.updated" && isSpent(info)) await meter(message(info));
    },
    "chat.params": async ({ sessionID: session }) => {
      const { stopped } = await meter({ event: "call", session });
      if (!stopped) return;
      throw new Error(`Remit: ${stopped}`);
    },
    "tool.execute.before": async ({ tool, sessionID: session, callID: call }, { args }) => {
      if (tool !== "task") {
        const silent = { refused: existsSync(JUDGED) ? UNJUDGED : "" };
        const use = { event: "tool", session, call, tool, arguments: args ?? {} };
        const { refused, arguments: changed } = await tell(use, ANSWER_MS).catch(() => silent);
        if (refused) throw new Error(`Remit: ${refused}`);
        if (!changed) return;
        for (const name of Object.keys(args)) delete args[name];
        Object.assign(args, changed);
        return;
      }
      await meter({ event: "call", session }); // so that the guard knows what was spent
      const about = { kind: args.subagent_type ?? "general", title: args.description ?? "", task: args.prompt ?? "" };
      const spawn = { event: "spawn", session, call, resumes: args.task_id ?? "", ...about };
      const { refused } = await tell(spawn, ANSWER_MS).catch(() => ({ refused: SILENT }));
      if (refused) throw new Error(`Remit: ${refused}`);
    },
    dispose: async () => {
      for (const session of roots) await meter({ event: "ended", session });
    },
  };
};
