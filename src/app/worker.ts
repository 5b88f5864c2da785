/** The program of a worker thread. */
import { MAKERS } from './app.js';
import { speed } from './speed.js';

speed.runWorker(MAKERS);
