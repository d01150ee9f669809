// What the local agent asks its user leave for, with the answers that it offers.

import { ShieldQuestion } from "lucide-react";
import { texts } from "@/texts";
import type { Acting } from "@/views/chat/acts";
import type { Question, Run } from "@/views/chat/store";

export function Questions({ run, acting }: { run: Run; acting: Acting }) {
  return run.questions.map((question, place) => (
    <QuestionBox key={question.id} question={question} acting={acting} first={place === 0} />
  ));
}

function QuestionBox({ question, acting, first }: { question: Question; acting: Acting; first: boolean }) {
  const words = texts.chat;
  const answer = (choice: string | null) => void acting.act("answer", { question: question.id, choice });
  const refuses = question.choices.some(({ kind }) => kind.startsWith("reject"));
  return (
    <section
      className="chat-question"
      aria-label={words.permission}
      id={first ? "chat-waiting" : undefined}
      tabIndex={-1}
      role="alert"
    >
      <div className="line">
        <ShieldQuestion size={16} aria-hidden />
        <strong>{question.title}</strong>
        {question.kind ? <code>{question.kind}</code> : null}
      </div>
      {question.details ? <pre className="chat-details">{question.details}</pre> : null}
      <div className="chat-acts">
        {question.choices.map(({ id, name, kind }) => (
          <button
            key={id}
            type="button"
            className={`button ${kind === "allow_once" ? "main" : kind.startsWith("reject") ? "danger" : ""}`}
            disabled={!acting.may("answer")}
            onClick={() => answer(id)}
          >
            {name}
          </button>
        ))}
        {refuses ? null : (
          <button
            type="button"
            className="button danger"
            disabled={!acting.may("answer")}
            onClick={() => answer(null)}
          >
            {words.no}
          </button>
        )}
      </div>
    </section>
  );
}
