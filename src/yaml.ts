/**
 * YAML that every parser reads alike. Those of version 1.1 (PyYAML, Ruby, Go) take more words for dates, booleans and numbers than
 * version 1.2 does, break lines at more characters and know fewer that may stand without quotes: all of that is quoted.
 */
import { Document, Scalar, visit } from 'yaml';

/** Tabs, control characters and further line breaks; what begins like a number or a date; marks of version 1.1. */
const UNCLEAR = /[\t\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]|^[-+.]*\d|^(?:=|<<)$/;
const ESCAPED = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g;

/** As `JSON.stringify` takes one. */
type Replacer = (key: unknown, value: unknown) => unknown;

export function writeYaml(data: unknown, replace: Replacer | null = null): string {
  const document = new Document(data, replace, { compat: 'yaml-1.1' });
  visit(document, {
    Scalar: (_, scalar) => {
      if (typeof scalar.value === 'string' && UNCLEAR.test(scalar.value)) scalar.type = Scalar.QUOTE_DOUBLE;
    },
  });
  // Texts that hold one are in double quotes, where an escape stands for it.
  return document
    .toString({ lineWidth: 0 })
    .replace(ESCAPED, (each) => `\\u${(each.codePointAt(0) as number).toString(16).padStart(4, '0')}`);
}
