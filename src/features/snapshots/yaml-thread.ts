/** The program of a thread that parses one YAML document and sends it back as JSON, which the service parses much faster. */
import { parentPort, workerData } from 'node:worker_threads';
import { ServiceError } from '../../base/errors.js';
import { type ParsedYaml, parseYaml } from './parse-document.js';

function parsed(text: string): ParsedYaml {
  try {
    return { json: JSON.stringify(parseYaml(text)) };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return { refusal: String(error.extensions['reason']) };
  }
}

parentPort?.postMessage(parsed(String(workerData)));
