// What the page shows, computed from an OpenAPI description: groups, types in words, examples.

export interface Schema {
  $ref?: string;
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema | false;
  prefixItems?: Schema[];
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
  contentSchema?: Schema;
}

export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: Schema;
}

type Content = Record<string, { schema?: Schema }>;

export interface Operation {
  operationId: string;
  summary?: string;
  description?: string;
  tags?: string[];
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Content };
  responses: Record<string, { description: string; content?: Content }>;
  security?: unknown[];
  "x-remit-permission"?: string;
}

export interface Description {
  info: { title: string; version: string; description?: string };
  externalDocs?: { url: string; description?: string };
  tags?: { name: string; description?: string }[];
  paths: Record<string, Record<string, Operation>>;
  components?: { schemas?: Record<string, Schema> };
}

export interface Entry {
  method: string;
  path: string;
  operation: Operation;
}

export interface Group {
  name: string;
  meaning: string;
  entries: Entry[];
}

/** Return the operations by their tags, in the order of the tags; those without a tag come last, under *rest*. */
export function groups(description: Description, rest: string): Group[] {
  const found = new Map<string, Group>();
  for (const { name, description: meaning = "" } of description.tags ?? [])
    found.set(name, { name, meaning, entries: [] });
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const name = operation.tags?.[0] ?? rest;
      const group = found.get(name) ?? { name, meaning: "", entries: [] };
      group.entries.push({ method: method.toUpperCase(), path, operation });
      found.set(name, group);
    }
  }
  return [...found.values()].filter((group) => group.entries.length > 0);
}

/** Return the groups with the operations that contain every word of a text. */
export function matching(all: Group[], text: string): Group[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = ({ method, path, operation }: Entry) => {
    const said = `${method} ${path} ${operation.operationId} ${operation.summary ?? ""}`.toLowerCase();
    return words.every((word) => said.includes(word));
  };
  return all
    .map((group) => ({ ...group, entries: group.entries.filter(fits) }))
    .filter((group) => group.entries.length > 0);
}

/** Return the name of the schema that a reference leads to; empty if it is none. */
export function named(schema: Schema): string {
  return schema.$ref?.split("/").pop() ?? "";
}

/** A type in words: texts, and names of schemas to link to. */
export type Part = string | { schema: string };

/** Return a type in words, such as `array of Run or null`. */
export function parts(schema: Schema, anything: string): Part[] {
  const name = named(schema);
  if (name) return [{ schema: name }];
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) {
    return choices.flatMap((each, index) =>
      index ? [" or ", ...parts(each, anything)] : parts(each, anything),
    );
  }
  if (schema.const !== undefined) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((each) => JSON.stringify(each)).join(" | ")];
  if (schema.type === "array") return ["array of ", ...parts(schema.items || {}, anything)];
  if (
    schema.type === "object" &&
    schema.additionalProperties &&
    typeof schema.additionalProperties === "object"
  ) {
    return ["object of ", ...parts(schema.additionalProperties, anything)];
  }
  return [([] as string[]).concat(schema.type ?? []).join(" or ") || anything];
}

// Error codes are some fifty, and have a page of their own.
const MOST_WORDS = 12;

/** Return the limits of a value in words, such as `1 to 200 characters`. */
export function limits(schema: Schema): string {
  const inner = schema.anyOf?.find((each) => each.type !== "null") ?? schema;
  const range = (least: number | undefined, most: number | undefined, unit: string): string => {
    // The largest integer that JavaScript holds is a limit of the format, not of the field.
    const high = most === Number.MAX_SAFE_INTEGER ? undefined : most;
    if (least === undefined && high === undefined) return "";
    if (high === undefined) return least ? `at least ${least}${unit}` : "";
    return least === undefined || least === 0 ? `at most ${high}${unit}` : `${least} to ${high}${unit}`;
  };
  // A list of known words, separated by commas.
  const words = /^\^\(\(([^()]+)\)\(,\(\1\)\)\*\)\?\$$/.exec(inner.pattern ?? "")?.[1]?.split("|") ?? [];
  const shown = words.length > MOST_WORDS ? [...words.slice(0, MOST_WORDS), "…"] : words;
  return [
    shown.length ? `some of ${shown.join(", ")}, separated by commas` : "",
    range(inner.minimum, inner.maximum, ""),
    range(inner.minLength, inner.maxLength, " characters"),
    range(inner.minItems, inner.maxItems, " items"),
  ]
    .filter(Boolean)
    .join(", ");
}

/** Return a value that a schema allows: fields that are required, and of the others none. */
export function example(schema: Schema, schemas: Record<string, Schema>, depth = 0): unknown {
  const name = named(schema);
  if (name) return depth > 6 ? {} : example(schemas[name] ?? {}, schemas, depth + 1);
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return example(choices.find((each) => each.type !== "null") ?? {}, schemas, depth + 1);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  switch (type) {
    case "object":
      return Object.fromEntries(
        (schema.required ?? []).map((field) => [
          field,
          example(schema.properties?.[field] ?? {}, schemas, depth + 1),
        ]),
      );
    case "array":
      return schema.minItems && schema.items ? [example(schema.items, schemas, depth + 1)] : [];
    case "integer":
    case "number":
      return schema.minimum ?? 1;
    case "boolean":
      return true;
    case "string":
      return "text";
    default:
      return null;
  }
}

/** Return the command that sends a request to an operation. */
export function command(
  { method, path, operation }: Entry,
  origin: string,
  schemas: Record<string, Schema>,
): string {
  const lines = [`curl ${method === "GET" ? "" : `-X ${method} `}${origin}${path}`];
  if (operation.security?.length !== 0) lines.push('-H "Authorization: Bearer $TOKEN"');
  const body = operation.requestBody?.content["application/json"]?.schema;
  if (body && operation.requestBody?.required) {
    lines.push(`-H "Content-Type: application/json"`);
    lines.push(`-d '${JSON.stringify(example(body, schemas)).replaceAll("'", "'\\''")}'`);
  }
  return lines.join(" \\\n  ");
}
