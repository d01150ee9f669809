// The same local agent for Node: each line that comes in is a request, each line that goes out answers one.
import { createInterface } from "node:readline";

const questions = ["Which of its endpoints need no login?", "What happens to a token when its user is deleted?"];

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const index = request.turn_index - 1;
  const done = index >= questions.length;
  const draft = done
    ? `Two things were asked. The last answer: ${request.remote_message}`
    : `${request.objective}: ${questions[index]}`;
  const response = { type: "desktop.local_prompt.response", request_id: request.request_id, status: "ok" };
  console.log(JSON.stringify({ ...response, draft_message: draft, done, confidence: 0.9, metrics: { tool_rounds: 0 } }));
}
