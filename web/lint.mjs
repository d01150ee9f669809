// Checks an OpenAPI document, given as a file, by Redocly's recommended rules; prints what is wrong as JSON.
// Redocly's core comes with openapi-typescript.
import { readFileSync } from "node:fs";
import { createConfig, lintFromString } from "@redocly/openapi-core";

const file = process.argv[2];
const config = await createConfig({ extends: ["recommended"] });
const found = await lintFromString({ source: readFileSync(file, "utf8"), absoluteRef: file, config });
const wrong = found.filter((each) => each.severity === "error");
console.log(JSON.stringify(wrong.map((each) => `${each.location[0]?.pointer}: ${each.message}`)));
