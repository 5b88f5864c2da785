/**
 * The program around the compiler gives it the time, pauses, and a faster way to write bytes. Without a host nothing pauses, no plan takes too
 * long, and bytes are written by JavaScript alone.
 */
import { hexDigits } from './base64.js';

export interface Host {
  /** Milliseconds since any fixed time. */
  now(): number;
  /** Returns when waiting requests had their turn. */
  nextTurn(): Promise<void>;
  /** The bytes of a base64 text, in either of its alphabets, as hexadecimal digits. */
  hexOfBase64(text: string): string;
}

let host: Host = { now: () => 0, nextTurn: () => Promise.resolve(), hexOfBase64: hexDigits };

/** To be called once in a thread. */
export function useHost(given: Host): void {
  host = given;
}

export function now(): number {
  return host.now();
}

export function nextTurn(): Promise<void> {
  return host.nextTurn();
}

export function hexOfBase64(text: string): string {
  return host.hexOfBase64(text);
}
