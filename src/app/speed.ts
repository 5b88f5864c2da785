/** How reads and writes are executed. Without src/speed, this line names `plain` of src/server/threads/speed.ts. */
export { speed } from '../speed/speed.js';
