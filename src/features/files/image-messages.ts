/** Messages between the service and the image processes: the lengths of both parts, JSON, bytes. */
import type { ImageOperation } from './image-operations.js';
import type { ImageSize } from './image-sizes.js';

export type ImageFormat = 'jpeg' | 'png' | 'webp' | 'tiff' | 'avif';

export interface Transformation {
  readonly operations: readonly ImageOperation[];
  /** The point that a crop keeps, where both sides are given and `fit` is cover; null for the centre. */
  readonly focus: { readonly x: number; readonly y: number } | null;
  readonly format: ImageFormat;
  readonly quality: number | null;
}

/** `most` is the largest width and height in pixels. Without a transformation the image is measured. */
export interface ImageJob {
  readonly most: number;
  readonly transformation: Transformation | null;
}

export type ImageAnswer =
  /** The first message. `failure` says why sharp is installed and could not be loaded, or is null. */
  | { readonly kind: 'started'; readonly isInstalled: boolean; readonly failure: string | null }
  | { readonly kind: 'measured'; readonly size: ImageSize | null }
  /** The bytes follow. */
  | { readonly kind: 'made' }
  | { readonly kind: 'refused'; readonly reason: string; readonly isTooLarge: boolean };

const LENGTHS = 8;

export function writeMessage(head: ImageJob | ImageAnswer, bytes: Buffer): readonly Buffer[] {
  const text = Buffer.from(JSON.stringify(head));
  const lengths = Buffer.alloc(LENGTHS);
  lengths.writeUInt32LE(text.length, 0);
  lengths.writeUInt32LE(bytes.length, 4);
  return [Buffer.concat([lengths, text]), bytes];
}

/** Calls back with each message. Pieces are joined once, when all of them are there. */
export class MessageReader {
  #pieces: Buffer[] = [];
  #length = 0;
  #wanted = LENGTHS;

  constructor(private readonly take: (head: string, bytes: Buffer) => void) {}

  push(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#length += piece.length;
    while (this.#length >= this.#wanted) this.#read();
  }

  #read(): void {
    const all = this.#pieces.length === 1 && this.#pieces[0] ? this.#pieces[0] : Buffer.concat(this.#pieces);
    const text = all.readUInt32LE(0);
    const whole = LENGTHS + text + all.readUInt32LE(4);
    if (all.length < whole) {
      this.#pieces = [all];
      this.#wanted = whole;
      return;
    }
    const rest = all.subarray(whole);
    this.#pieces = [rest];
    this.#length = rest.length;
    this.#wanted = LENGTHS;
    this.take(all.toString('utf8', LENGTHS, LENGTHS + text), all.subarray(LENGTHS + text, whole));
  }
}
