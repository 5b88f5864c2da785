/**
 * Mails with a link. How they travel is the installation's affair: EMAIL_TRANSPORT names a module that sends them. Without
 * one the link is logged, so that a first try needs no mail server.
 */

import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { StartError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';

interface Mail {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly link: string;
}

/** Never fails: whether a mail went out must not change what the caller sees. */
export type Mailer = (mail: Mail) => Promise<void>;

export async function openMailer(transport: string | null, observe: Observer): Promise<Mailer> {
  if (transport === null) return async ({ to, link }) => observe({ kind: 'mail-logged', to, link });
  const send = await loadTransport(transport);
  return async ({ to, subject, text }) => {
    try {
      await send({ to, subject, text });
    } catch (error) {
      observe({ kind: 'mail-failed', to, error });
    }
  };
}

type Send = (mail: { to: string; subject: string; text: string }) => unknown;

async function loadTransport(transport: string): Promise<Send> {
  const local = /^[./]|^[a-z]:\\/i.test(transport);
  const { send }: { send?: unknown } = await import(local ? pathToFileURL(resolve(transport)).href : transport).catch(
    (error: unknown) => {
      throw new StartError(`EMAIL_TRANSPORT: ${messageOf(error)}`);
    },
  );
  if (typeof send !== 'function') {
    throw new StartError(`EMAIL_TRANSPORT: "${transport}" must export a function "send"`);
  }
  return (mail) => send(mail);
}
