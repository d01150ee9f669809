// Starts the console.

import { Provider as TooltipProvider } from "@radix-ui/react-tooltip";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError, takeKey } from "@/api/client";
import { App } from "@/app";
import { Announcements } from "@/look/announce";
import { startTheme } from "@/look/theme";
import "@/look/tokens.css";
import "@/look/base.css";
import "@/look/parts.css";

takeKey();
startTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A refusal stays one however often it is asked for; a server that is not there may come back.
      retry: (failures, error) =>
        failures < 2 && error instanceof ApiError && (error.status === 0 || error.status >= 500),
    },
  },
});

const page = document.getElementById("page");
if (page) {
  createRoot(page).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <TooltipProvider delayDuration={300}>
          <Announcements>
            <App />
          </Announcements>
        </TooltipProvider>
      </QueryClientProvider>
    </StrictMode>,
  );
}
