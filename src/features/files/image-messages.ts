/** Messages between the service and the image processes. */
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
  /** With the bytes. */
  | { readonly kind: 'made' }
  | { readonly kind: 'refused'; readonly reason: string; readonly isTooLarge: boolean };

/** To the process. */
export interface ImageTask {
  readonly job: ImageJob;
  readonly bytes: Buffer;
}

/** From the process. */
export interface ImageResult {
  readonly answer: ImageAnswer;
  readonly bytes: Buffer;
}
