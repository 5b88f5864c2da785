/** The types of the messages that the server sends and a connection handles, each by its first byte. */
export const BACKEND_KEY_DATA = 0x4b;
export const ROW_DESCRIPTION = 0x54;
export const PARSE_COMPLETE = 0x31;
export const DATA_ROW = 0x44;
export const COMMAND_COMPLETE = 0x43;
export const PORTAL_SUSPENDED = 0x73;
export const NOTIFICATION_RESPONSE = 0x41;
export const ERROR_RESPONSE = 0x45;
export const READY_FOR_QUERY = 0x5a;

/** The transaction status in ReadyForQuery: no transaction is open, or one that can only be rolled back. */
export const TRANSACTION_IDLE = 0x49;
export const TRANSACTION_FAILED = 0x45;
