/**
 * The operations of `transforms`: methods of sharp, with the parameters that each takes and their ranges. No operation reads or writes
 * another file. The ranges keep the cost of one pixel small; the deadline of a transformation bounds the rest.
 */

import { invalidQuery } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';

/** A method of sharp and its arguments. */
export type ImageOperation = readonly [name: string, ...values: readonly unknown[]];

/** Says what a value must be, or null if it is that. `most` is the largest side of an image. */
type Check = (value: unknown, most: number) => string | null;

const number =
  (least: number, largest: number): Check =>
  (value) =>
    typeof value === 'number' && value >= least && value <= largest ? null : `a number from ${least} to ${largest}`;

const integer =
  (least: number, largest: number): Check =>
  (value) =>
    Number.isInteger(value) && Number(value) >= least && Number(value) <= largest
      ? null
      : `a whole number from ${least} to ${largest}`;

/** Pixels, at most as many as a side may have. */
const pixels =
  (least: number): Check =>
  (value, most) =>
    integer(least, most)(value, most);

const offset: Check = (value, most) => number(-most, most)(value, most);

const boolean: Check = (value) => (typeof value === 'boolean' ? null : 'true or false');

const oneOf =
  (...allowed: readonly unknown[]): Check =>
  (value) =>
    allowed.includes(value) ? null : allowed.length === 1 ? String(allowed[0]) : `one of ${allowed.join(', ')}`;

const list =
  (length: readonly number[], each: Check): Check =>
  (value, most) => {
    if (!Array.isArray(value) || !length.includes(value.length)) return `a list of ${length.join(' or ')}`;
    return value.map((entry) => each(entry, most)).find((complaint) => complaint !== null) ?? null;
  };

const either =
  (...checks: readonly Check[]): Check =>
  (value, most) => {
    const complaints = checks.map((check) => check(value, most));
    return complaints.includes(null) ? null : complaints.join(', or ');
  };

const options =
  (fields: Readonly<Record<string, Check>>, required: readonly string[] = []): Check =>
  (value, most) => {
    if (!isObject(value)) return `an object with ${Object.keys(fields).join(', ')}`;
    const missing = required.find((name) => value[name] === undefined);
    if (missing !== undefined) return `an object with "${missing}"`;
    for (const [name, given] of Object.entries(value)) {
      const check = Object.hasOwn(fields, name) ? fields[name] : undefined;
      if (!check) return `an object with ${Object.keys(fields).join(', ')}, without "${name}"`;
      const complaint = check(given, most);
      if (complaint !== null) return `an object whose "${name}" is ${complaint}`;
    }
    return null;
  };

const level = integer(0, 255);
const colour = either(
  (value) =>
    typeof value === 'string' && /^[\w#%(),./ -]{1,60}$/.test(value) ? null : 'a colour such as "#ff8800" or "white"',
  options({ r: level, g: level, b: level, alpha: number(0, 1) }, ['r', 'g', 'b']),
);
const background = options({ background: colour });
const factor = number(-10_000, 10_000);
const matrix = (side: number): Check => list([side], list([side], factor));

const SIDES = ['top', 'right', 'bottom', 'left'];
const POSITIONS = ['centre', 'center', 'entropy', 'attention', 'north', 'northeast', 'east', 'southeast', 'south'];
const RESIZE = options({
  width: either(oneOf(null), pixels(1)),
  height: either(oneOf(null), pixels(1)),
  fit: oneOf('cover', 'contain', 'fill', 'inside', 'outside'),
  position: oneOf(
    ...[...POSITIONS, 'southwest', 'west', 'northwest', ...SIDES],
    ...['right top', 'right bottom', 'left bottom', 'left top'],
  ),
  background: colour,
  kernel: oneOf('nearest', 'linear', 'cubic', 'mitchell', 'lanczos2', 'lanczos3', 'mks2013', 'mks2021'),
  withoutEnlargement: boolean,
  withoutReduction: boolean,
  fastShrinkOnLoad: boolean,
});
const AREA = { left: pixels(0), top: pixels(0), width: pixels(1), height: pixels(1) };
const GREYSCALE = [boolean];
const NORMALISE = [options({ lower: number(0, 99), upper: number(1, 100) })];
const COLOURSPACE = [oneOf('srgb', 'rgb', 'rgb16', 'b-w', 'bw', 'grey16', 'cmyk', 'lab', 'scrgb')];
const SHARPEN = { sigma: number(0.01, 10), m1: number(0, 1_000), m2: number(0, 1_000) };
const PEAKS = { x1: number(0, 1_000), y2: number(0, 1_000), y3: number(0, 1_000) };

/** The arguments of each operation; all of them may be left out. */
const OPERATIONS: Readonly<Record<string, readonly Check[]>> = {
  resize: [either(oneOf(null), pixels(1), RESIZE), either(oneOf(null), pixels(1)), RESIZE],
  extract: [options(AREA, Object.keys(AREA))],
  extend: [
    either(
      pixels(1),
      options({
        ...Object.fromEntries(SIDES.map((side) => [side, pixels(0)])),
        extendWith: oneOf('background', 'copy', 'repeat', 'mirror'),
        background: colour,
      }),
    ),
  ],
  trim: [options({ background: colour, threshold: number(0, 255), lineArt: boolean })],
  rotate: [number(-360, 360), background],
  flip: [boolean],
  flop: [boolean],
  affine: [
    either(list([4], number(-100, 100)), list([2], list([2], number(-100, 100)))),
    options({
      ...{ background: colour, idx: offset, idy: offset, odx: offset, ody: offset },
      interpolator: oneOf('nearest', 'bilinear', 'bicubic', 'nohalo', 'lbb', 'vsqbs'),
    }),
  ],
  sharpen: [either(SHARPEN.sigma, options({ ...SHARPEN, ...PEAKS }, ['sigma'])), SHARPEN.m1, SHARPEN.m2],
  median: [integer(1, 15)],
  blur: [
    either(
      number(0.3, 100),
      boolean,
      options(
        { sigma: number(0.3, 100), precision: oneOf('integer', 'float', 'approximate'), minAmplitude: number(0.01, 1) },
        ['sigma'],
      ),
    ),
  ],
  dilate: [integer(1, 15)],
  erode: [integer(1, 15)],
  flatten: [either(boolean, background)],
  unflatten: [],
  gamma: [number(1, 3), number(1, 3)],
  negate: [either(boolean, options({ alpha: boolean }))],
  normalise: NORMALISE,
  normalize: NORMALISE,
  clahe: [options({ width: integer(1, 100), height: integer(1, 100), maxSlope: integer(0, 100) }, ['width', 'height'])],
  convolve: [
    (value, most) =>
      options(
        {
          ...{ width: integer(3, 15), height: integer(3, 15), scale: factor, offset: factor },
          kernel: list([isObject(value) ? Number(value['width']) * Number(value['height']) : 0], factor),
        },
        ['width', 'height', 'kernel'],
      )(value, most),
  ],
  threshold: [level, options({ greyscale: boolean, grayscale: boolean })],
  linear: [either(factor, list([1, 2, 3, 4], factor)), either(factor, list([1, 2, 3, 4], factor))],
  recomb: [either(matrix(3), matrix(4))],
  modulate: [
    options({
      ...{ brightness: number(0, 100), saturation: number(0, 100), lightness: number(-100, 100) },
      hue: integer(-360, 360),
    }),
  ],
  tint: [colour],
  greyscale: GREYSCALE,
  grayscale: GREYSCALE,
  toColourspace: COLOURSPACE,
  toColorspace: COLOURSPACE,
};

/** Without these arguments sharp itself throws. */
const REQUIRED = new Set(['extract', 'extend', 'affine', 'clahe', 'convolve', 'recomb', 'tint']);

/** An entry of `transforms`: a name, or a list of a name and its arguments. */
export function readOperation(entry: unknown, most: number): ImageOperation {
  const [name, ...values] = Array.isArray(entry) ? entry : [entry];
  const checks = typeof name === 'string' && Object.hasOwn(OPERATIONS, name) ? OPERATIONS[name] : undefined;
  if (!checks) throw invalidQuery(`"transforms": there is no transformation ${JSON.stringify(name)}`);
  if (values.length > checks.length)
    throw invalidQuery(
      `"transforms": "${name}" takes at most ${checks.length} argument${checks.length === 1 ? '' : 's'}`,
    );
  if (values.length === 0 && REQUIRED.has(name)) throw invalidQuery(`"transforms": "${name}" needs an argument`);
  for (const [position, value] of values.entries()) {
    const complaint = checks[position]?.(value, most) ?? null;
    if (complaint !== null)
      throw invalidQuery(`"transforms": argument ${position + 1} of "${name}" must be ${complaint}`);
  }
  return [name, ...values];
}
