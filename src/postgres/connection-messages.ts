/** What the server says: the first byte of each message that matters here. */
export const KEY = 0x4b;
export const DESCRIBED = 0x54;
export const PARSED = 0x31;
export const ROW = 0x44;
export const COMPLETE = 0x43;
export const NOTIFIED = 0x41;
export const ERROR = 0x45;
export const READY = 0x5a;

/** Of a connection, as it says behind each answer: no transaction is open, or one that can only be undone. */
export const IDLE = 0x49;
export const FAILED = 0x45;
