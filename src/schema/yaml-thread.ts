/** The program of a thread that parses one YAML document and sends it back as JSON, which the service parses much faster. */
import { parentPort, workerData } from 'node:worker_threads';
import { ServiceError } from '../base/errors.js';
import { parseYaml } from './parse-document.js';

/** The document as JSON, or the reason why it is refused. */
export type ParsedYaml = { readonly json: string } | { readonly refusal: string };

/** JSON of a document without anchors is at most five times as long as its YAML. */
const MAX_GROWTH = 8;

function parsed(text: string): ParsedYaml {
  try {
    const json = JSON.stringify(parseYaml(text));
    return json.length > MAX_GROWTH * text.length
      ? { refusal: 'The document repeats its anchors too often' }
      : { json };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return { refusal: String(error.extensions['reason']) };
  }
}

parentPort?.postMessage(parsed(String(workerData)));
