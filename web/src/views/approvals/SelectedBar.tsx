// An answer to several questions at once.

import { useState } from "react";
import { texts } from "@/texts";

const words = texts.approvals;

export function SelectedBar({
  count,
  busy,
  onClear,
  onDecide,
}: {
  count: number;
  busy: boolean;
  onClear: () => void;
  onDecide: (agree: boolean, reason: string) => void;
}) {
  const [reason, setReason] = useState("");
  return (
    <section className="card selected-bar" aria-label={words.selected(count)}>
      <strong role="status">{words.selected(count)}</strong>
      <input
        className="input"
        value={reason}
        onChange={(event) => setReason(event.target.value)}
        placeholder={words.reason}
        aria-label={words.reason}
        maxLength={2_000}
      />
      <button type="button" className="button main" disabled={busy} onClick={() => onDecide(true, reason)}>
        {words.approveSelected(count)}
      </button>
      <button type="button" className="button danger" disabled={busy} onClick={() => onDecide(false, reason)}>
        {words.rejectSelected(count)}
      </button>
      <button type="button" className="button plain" onClick={onClear}>
        {words.clear}
      </button>
    </section>
  );
}
