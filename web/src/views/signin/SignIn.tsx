// The page for a browser that the server does not know.

import { type SubmitEvent, useId, useState } from "react";
import { ApiError, type ConsoleState, signIn } from "@/api/client";
import { Command, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import "./signin.css";

export function SignIn({ entered }: { entered: (state: ConsoleState) => void }) {
  const id = useId();
  const [token, setToken] = useState("");
  const [trouble, setTrouble] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setTrouble(null);
    try {
      entered(await signIn(token.trim()));
    } catch (error) {
      setTrouble(error);
      setBusy(false);
    }
  };
  const wrong = trouble instanceof ApiError && trouble.status === 401;
  return (
    <main className="signin">
      <form className="card stack" onSubmit={submit}>
        <h1>{texts.signIn.title}</h1>
        <div className="field">
          <label htmlFor={id}>{texts.signIn.token}</label>
          <input
            id={id}
            className="input"
            type="password"
            autoComplete="off"
            required
            value={token}
            onChange={(event) => setToken(event.target.value)}
            aria-describedby={`${id}-hint`}
            aria-invalid={wrong}
          />
          <span id={`${id}-hint`} className="hint">
            {texts.signIn.tokenHint}
          </span>
          {wrong ? (
            <span className="wrong" role="alert">
              {texts.signIn.wrong}
            </span>
          ) : null}
        </div>
        {trouble !== null && !wrong ? <Trouble error={trouble} /> : null}
        <button type="submit" className="button main" disabled={busy}>
          {texts.signIn.signIn}
        </button>
        {isUsed() ? (
          <p className="wrong" role="alert">
            {texts.signIn.usedLink}
          </p>
        ) : (
          <p className="soft">{texts.signIn.orLink}</p>
        )}
        {texts.signIn.linkCommands.map((command) => (
          <Command key={command} text={command} />
        ))}
      </form>
    </main>
  );
}

/** Return whether the server sent the browser here with a link that no longer counts. */
function isUsed(): boolean {
  return new URLSearchParams(window.location.search).get("link") === "used";
}
