#!/usr/bin/env node
/** The program `lateral`. */
import { fail, main } from './commands/command-line.js';

main(process.argv.slice(2)).catch(fail);
