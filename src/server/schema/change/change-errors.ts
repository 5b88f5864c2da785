/** Errors of PostgreSQL during a schema change, as errors for the client. */
import {
  ErrorWithLogDetail,
  forbidden,
  invalidPayload,
  ServiceError,
  serviceUnavailable,
  unprocessable,
} from '../../../base/errors.js';
import { propertiesOf } from '../../../base/narrow.js';
import { fromWrite } from '../../../base/sqlstate.js';

/** A lock timeout, a deadlock, or a catalog row that another transaction changed. */
export function isBlocked(error: unknown): boolean {
  const { code, message } = propertiesOf(error);
  if (code === '55P03' || code === '40P01' || code === '40001') return true;
  return code === 'XX000' && /^tuple concurrently (updated|deleted)/.test(String(message));
}

const REFUSALS: Readonly<Record<string, string>> = {
  '42P07': 'A table, index or constraint of that name already exists',
  '42701': 'A column of that name already exists in the table',
  '42710': 'A constraint of that name already exists',
  '42804': 'The types do not match, of a default, of a check or of the two sides of a relation',
  '42846': 'The values cannot be converted to the new type',
  '42883': 'The expression or the relation uses a function or operator that does not exist for these types',
  '42P17': 'The expression of a generated field must give the same result at any time',
  '42704': 'The database does not know the type (geometries need PostGIS), or has no index for values of it',
  '42830': 'The related collection has no key that can be referenced',
  '42P16': 'The table would not be valid',
  '42611': 'The column would not be valid',
  '42809': 'This kind of table cannot be changed that way',
  '428C9': 'The value of the field is generated',
  '0A000': 'The database does not support this change',
  '55000': 'The table cannot be changed that way',
  '55P04': 'A new value of an enum can only be used once it was added: apply the two changes one after the other',
  '54011': 'The table has too many columns',
};

export function asSchemaChangeError(error: unknown): unknown {
  const { code } = propertiesOf(error);
  if (typeof code !== 'string') return error;
  const reason = REFUSALS[code];
  if (reason) return invalidPayload(reason);
  if (code === '2BP01') return unprocessable('Other objects of the database depend on it');
  if (code === '55006') return unprocessable('The table is in use by this change itself');
  if (code === '57014')
    return serviceUnavailable('database', 'The change took too long', { option: 'DATABASE_STATEMENT_TIMEOUT' });
  if (/^22/.test(code) && code !== '22001' && code !== '22003')
    return invalidPayload('Existing values, or the default, cannot be converted to the type');
  const final = fromWrite(error);
  // Only administrators change the schema.
  if (!(final instanceof ErrorWithLogDetail)) return final;
  const says = `The database says: ${final.detail}.`;
  return final.code === 'FORBIDDEN'
    ? forbidden(says)
    : new ServiceError(final.code, `${final.message} ${says}`, { ...final.extensions, detail: final.detail });
}
