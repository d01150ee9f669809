// Starts the page that shows the API of this server.

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { startTheme } from "@/look/theme";
import { DocsPage } from "./DocsPage";
import "@/look/tokens.css";
import "@/look/base.css";
import "@/look/parts.css";
import "./docs.css";

startTheme();

const page = document.getElementById("page");
if (page) {
  createRoot(page).render(
    <StrictMode>
      <DocsPage />
    </StrictMode>,
  );
}
