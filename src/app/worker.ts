/** The program of a worker thread. */
import { runWorker } from '../speed/threads/worker.js';
import { MAKERS } from './app.js';

runWorker(MAKERS);
