// What happened, said once: as a note in the corner, and to a screen reader.

import { X } from "lucide-react";
import { createContext, type ReactNode, useCallback, useContext, useMemo, useState } from "react";
import { explain } from "@/look/parts";
import { texts } from "@/texts";

interface Note {
  id: number;
  text: string;
  tone: "good" | "bad" | "";
}

interface Announcing {
  /** Say something that needs no answer. */
  say: (text: string, tone?: Note["tone"]) => void;
  /** Say why something did not work; it stays until it is closed. */
  fail: (error: unknown) => void;
}

const Context = createContext<Announcing>({ say: () => undefined, fail: () => undefined });

export const useAnnounce = (): Announcing => useContext(Context);

// Long enough to read a sentence.
const SHOWN_MS = 6_000;
let number = 0;

export function Announcements({ children }: { children: ReactNode }) {
  const [notes, setNotes] = useState<Note[]>([]);
  const close = useCallback((id: number) => setNotes((all) => all.filter((each) => each.id !== id)), []);
  const say = useCallback(
    (text: string, tone: Note["tone"] = "") => {
      const id = ++number;
      setNotes((all) => [...all.slice(-3), { id, text, tone }]);
      if (tone !== "bad") setTimeout(() => close(id), SHOWN_MS);
    },
    [close],
  );
  const fail = useCallback(
    (error: unknown) => {
      const { title, advice } = explain(error);
      say(advice ? `${title} — ${advice}` : title, "bad");
    },
    [say],
  );
  const value = useMemo(() => ({ say, fail }), [say, fail]);
  return (
    <Context value={value}>
      {children}
      <div className="shell-toasts" role="log" aria-live="polite" aria-label={texts.shell.notes}>
        {notes.map((note) => (
          <div key={note.id} className={`shell-toast ${note.tone}`}>
            <span>{note.text}</span>
            <button
              type="button"
              className="button plain icon"
              onClick={() => close(note.id)}
              aria-label={texts.common.close}
            >
              <X size={14} aria-hidden />
            </button>
          </div>
        ))}
      </div>
    </Context>
  );
}
