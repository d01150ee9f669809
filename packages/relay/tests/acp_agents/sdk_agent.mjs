// An agent made with the JavaScript SDK: `node sdk_agent.mjs FILE`. What it does stands in its objective, as JSON.
// FILE keeps its sessions, so that another process of it can take them up again.

import { spawn } from "node:child_process";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { agent, methods, ndJsonStream, PROTOCOL_VERSION, RequestError } from "@agentclientprotocol/sdk";

const file = process.argv[2];
const waiting = new Map();
let reads = false;
let made = 0;

const text = (words) => ({ type: "text", text: words });

function known(session) {
  return existsSync(file) && readFileSync(file, "utf8").split("\n").includes(session);
}

const steps = {
  say: (tell, words) => tell({ sessionUpdate: "agent_message_chunk", content: text(words) }),
  think: (tell, words) => tell({ sessionUpdate: "agent_thought_chunk", content: text(words) }),
  plan: (tell, words) =>
    tell({ sessionUpdate: "plan", entries: [{ content: words, priority: "high", status: "pending" }] }),
  async ask(tell, given, client, sessionId) {
    // What the tool is used with is said once, when it is told of, and not again when leave is asked for.
    const call = { toolCallId: "call-1", title: "Write a file", kind: "edit", status: "pending", rawInput: given };
    await tell({ sessionUpdate: "tool_call", ...call });
    const options = [
      { optionId: "yes", name: "Allow", kind: "allow_once" },
      { optionId: "no", name: "Reject", kind: "reject_once" },
    ];
    const toolCall = { toolCallId: "call-1" };
    const { outcome } = await client.request(methods.client.session.requestPermission, { sessionId, toolCall, options });
    const answer = outcome.outcome === "selected" ? outcome.optionId : outcome.outcome;
    await tell({ sessionUpdate: "tool_call_update", toolCallId: "call-1", status: "completed" });
    await steps.say(tell, `answered ${answer}. `);
  },
  async read(tell, path, client, sessionId) {
    if (!reads) return steps.say(tell, "not offered");
    try {
      const { content } = await client.request(methods.client.fs.readTextFile, { sessionId, path });
      await steps.say(tell, content);
    } catch (error) {
      await steps.say(tell, error.message);
    }
  },
  async spawn(tell) {
    const child = spawn("sleep", ["600"], { stdio: "ignore" });
    await steps.say(tell, `${child.pid}`);
  },
  // After its answer has been read, as far as it can tell.
  leave: () => void setTimeout(() => process.exit(0), 200),
};

console.log("Listening on something that is no message");

agent({ name: "example" })
  .onRequest(methods.agent.initialize, ({ params }) => {
    reads = params.clientCapabilities?.fs?.readTextFile === true;
    const agentCapabilities = { loadSession: true, sessionCapabilities: { resume: {} } };
    return { protocolVersion: PROTOCOL_VERSION, agentCapabilities, agentInfo: { name: "example", version: "1" } };
  })
  .onRequest(methods.agent.session.new, () => {
    const sessionId = `session-${process.pid}-${(made += 1)}`;
    appendFileSync(file, `${sessionId}\n`);
    return { sessionId };
  })
  .onRequest(methods.agent.session.resume, ({ params: { sessionId } }) => {
    if (!known(sessionId)) throw RequestError.resourceNotFound(sessionId);
    return {};
  })
  .onRequest(methods.agent.session.prompt, async ({ params: { sessionId, prompt }, client }) => {
    const tell = (update) => client.notify(methods.client.session.update, { sessionId, update });
    const objective = prompt[0].text.split("objective:\n")[1].split("\n")[0];
    for (const [name, given] of JSON.parse(objective)) {
      if (name === "wait") {
        await new Promise((resolve) => waiting.set(sessionId, resolve));
        return { stopReason: "cancelled" };
      }
      if (name === "session") await steps.say(tell, sessionId);
      else await steps[name](tell, given, client, sessionId);
    }
    return { stopReason: "end_turn" };
  })
  .onNotification(methods.agent.session.cancel, ({ params: { sessionId } }) => {
    waiting.get(sessionId)?.();
  })
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
