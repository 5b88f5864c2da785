/** The JSON of a request's body. A large body waits for its turn, and a long one is parsed in several of them. */
import { invalidPayload, ServiceError } from '../../base/errors.js';
import { parseJson, parseJsonSteps } from '../../base/exact-json.js';
import { advance } from '../../base/time-slices.js';
import { TurnQueue } from '../node/turns.js';

interface Sender {
  readonly address: string;
  readonly aborted: boolean;
}

const LARGE_BODY_BYTES = 65_536;

/** To be parsed in several turns takes longer altogether. */
const LONG_BODY_BYTES = 1_200_000;

const largeBodies = new TurnQueue();

const UTF8 = new TextDecoder('utf-8', { fatal: true });

export async function parseBody(body: Buffer, parse: (text: string) => unknown, sender: Sender): Promise<unknown> {
  try {
    if (body.length < LARGE_BODY_BYTES) return parse(textOf(body, sender));
    if (body.length < LONG_BODY_BYTES) return await largeBodies.run(sender.address, () => parse(textOf(body, sender)));
    return await parseLong(body, parse === parseJson, sender);
  } catch (error) {
    throw error instanceof ServiceError ? error : invalidPayload('The body is not valid JSON');
  }
}

async function parseLong(body: Buffer, isExact: boolean, sender: Sender): Promise<unknown> {
  const { address } = sender;
  const steps = parseJsonSteps(textOf(body, sender), isExact);
  for (;;) {
    const result = await largeBodies.run(address, () => advance(steps));
    if (result.done) return result.value;
    checkSender(sender);
  }
}

function textOf(body: Buffer, sender: Sender): string {
  checkSender(sender);
  return UTF8.decode(body);
}

function checkSender({ aborted }: Sender): void {
  if (aborted) throw invalidPayload('The client disconnected');
}
