// Names in addresses: ids may hold any character.

/** Return a part of the address as it was before it was encoded. */
export function nameIn(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a percent sign that is part of the name
  }
}
