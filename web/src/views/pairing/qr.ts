// The QR code in the answer of the device, taken apart: of a drawing that came from elsewhere only a path is shown.

export interface Qr {
  /** The number of modules of a side, with the margin. */
  size: number;
  path: string;
}

/** Return the parts of a drawing of a QR code; null if it is not one. */
export function qrOf(svg: string): Qr | null {
  const width = /<svg [^>]*width="(\d+)"/.exec(svg);
  const scale = /<path [^>]*transform="scale\((\d+)\)"/.exec(svg);
  const path = /<path [^>]*\bd="([Mmhv\d\s.,-]+)"/.exec(svg);
  if (!width?.[1] || !path?.[1]) return null;
  return { size: Number(width[1]) / Number(scale?.[1] ?? 1), path: path[1] };
}
