// Makes the types of both APIs from their OpenAPI documents: src/api/operator.ts and src/api/shared.ts. The package in
// clients/ts has the first of them, too. With a folder as an argument it writes there instead, so that a test can compare.
import { execFileSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import openapiTS, { astToString } from "openapi-typescript";

const here = import.meta.dirname;
const into = process.argv[2] ?? join(here, "src", "api");
const own = join(here, "..", ".venv", "bin", "python");
const python = process.env.PYTHON ?? (existsSync(own) ? own : "python3");
const documents = JSON.parse(
    execFileSync(python, [join(here, "schemas.py")], { encoding: "utf8", maxBuffer: 1e8 }),
);

for (const [name, document] of Object.entries(documents)) {
    // The paths are left out: a view names the address and the schema that it gets from there.
    const made = astToString(await openapiTS({ ...document, paths: {} }, { alphabetize: true }));
    const text = `// Made by \`npm run types\` in web/ from the OpenAPI document. Do not edit.\n\n${made}`;
    writeFileSync(join(into, `${name}.ts`), text);
    if (name === "operator" && process.argv[2] === undefined)
        writeFileSync(join(here, "..", "clients", "ts", "src", "api.ts"), text);
}
