// Keeps the frame of the page when a view fails, and says so.

import { Component, type ReactNode } from "react";
import { Trouble } from "@/look/parts";

interface State {
  error: unknown;
  failed: boolean;
}

export class Failing extends Component<{ children: ReactNode }, State> {
  override state: State = { error: null, failed: false };

  static getDerivedStateFromError(error: unknown): State {
    return { error, failed: true };
  }

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    return <Trouble error={this.state.error} again={() => location.reload()} />;
  }
}
