#!/usr/bin/env node
/** The program `lateral`. */
import { fail, main } from './app/command-line.js';

main(process.argv.slice(2)).catch(fail);
