// A text or a value from the record: redaction tokens are marked, structures are indented.

import { useState } from "react";
import { texts } from "@/texts";
import { readable, splitTokens } from "@/views/delegation/model";

// Longer texts are folded: a panel shows many of them.
const FOLDED = 1_200;

export function Marked({ text }: { text: string }) {
  return (
    <>
      {splitTokens(text).map(({ text: part, kind }, place) =>
        kind ? (
          <mark key={place} className="redacted" title={texts.delegation.token(kind)}>
            {part}
          </mark>
        ) : (
          part
        ),
      )}
    </>
  );
}

/** A sentence of the server, in which names of settings stand between backticks. */
export function Words({ text }: { text: string }) {
  return (
    <>
      {text
        .split("`")
        .map((part, place) =>
          place % 2 ? <code key={place}>{part}</code> : <Marked key={place} text={part} />,
        )}
    </>
  );
}

/** With `whole`, nothing of it is folded: whoever approves it reads it first. */
export function Value({ value, whole = false }: { value: unknown; whole?: boolean }) {
  const [open, setOpen] = useState(false);
  const text = readable(value);
  const folded = !whole && !open && text.length > FOLDED;
  const shown = folded ? `${text.slice(0, FOLDED)}…` : text;
  return (
    <div className="value">
      {typeof value === "string" ? (
        <p className="said">
          <Marked text={shown} />
        </p>
      ) : (
        <pre>
          <Marked text={shown} />
        </pre>
      )}
      {folded ? (
        <button type="button" className="button plain" onClick={() => setOpen(true)}>
          {texts.common.more}
        </button>
      ) : null}
    </div>
  );
}

/** A heading with what belongs to it; nothing if there is nothing. */
export function Part({
  title,
  children,
  aside,
}: {
  title: string;
  children: React.ReactNode;
  aside?: string;
}) {
  return (
    <section className="part">
      <h3>
        {title}
        {aside ? <small>{aside}</small> : null}
      </h3>
      {children}
    </section>
  );
}
