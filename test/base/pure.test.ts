/** The parts that the compiler has instead of Node's give what Node's give. */
import { createHash, randomBytes } from 'node:crypto';
import { isIP } from 'node:net';
import t from 'tap';
import { base64OfHex, bytesOfBase64, hexDigits } from '../../src/base/base64.js';
import { Digits, parseJson, writeJson } from '../../src/base/exact-json.js';
import { ipVersion } from '../../src/base/ip-address.js';
import { sha256 } from '../../src/base/sha256.js';
import { isLongerThan } from '../../src/base/utf8.js';

t.test('base64 is read and written as Node does', async (t) => {
  for (let length = 0; length < 100; length++) {
    const bytes = randomBytes(length);
    const hex = bytes.toString('hex');
    for (const encoding of ['base64', 'base64url'] as const) {
      const text = bytes.toString(encoding).replace(/=+$/, '');
      t.equal(hexDigits(text), hex);
      t.strictSame([...bytesOfBase64(text)], [...bytes]);
    }
    t.equal(base64OfHex(hex), bytes.toString('base64'));
  }
  t.equal(hexDigits('QUJDR'), Buffer.from('QUJDR', 'base64').toString('hex'), 'a digit that ends no byte is left out');
});

t.test('a digest is that of Node', async (t) => {
  for (let length = 0; length < 300; length++) {
    const text = 'aß😀'.repeat(length).slice(0, length);
    t.equal(sha256(text), createHash('sha256').update(text).digest('hex'));
  }
});

t.test('the length of a text is that of its UTF-8', async (t) => {
  const texts = [
    '',
    'abc',
    'äöü',
    '漢字',
    '😀😀',
    'a\ud800b',
    '\udc00\ud800',
    '\ud83d',
    'x'.repeat(70),
    'ß'.repeat(32),
  ];
  for (const text of texts)
    for (let most = 0; most < 80; most++)
      t.equal(isLongerThan(text, most), Buffer.byteLength(text) > most, `${JSON.stringify(text)} ${most}`);
});

t.test('an address has the version that Node says', async (t) => {
  const texts = [
    ...['1.2.3.4', '255.255.255.255', '256.1.1.1', '1.2.3', '1.2.3.4.5', '01.2.3.4', '1.2.3.', '', 'a'],
    ...[
      '::',
      '::1',
      '1::',
      '1:2:3:4:5:6:7:8',
      '1:2:3:4:5:6:7:8:9',
      '1:2:3:4:5:6:7',
      '1:2:3:4:5:6:7::',
      '::2:3:4:5:6:7:8',
    ],
    ...['1::8', '1::2::3', ':::', ':', ':1', '1:', '12345::', 'g::', '::ffff:1.2.3.4', '::1.2.3.4:5', '1.2.3.4::'],
    ...['1:2:3:4:5:6:1.2.3.4', '1:2:3:4:5:6:7:1.2.3.4', '1::1.2.3.4', '1:2:3:4:5::1.2.3.4', '1:2:3:4:5:6::1.2.3.4'],
    ...['FE80::1', '::1.2.3.256', '1::2:', ':1::2', '::1.2.3.4', '1.2.3.4:1::', '2001:db8::/32', ' ::1'],
  ];
  for (const text of texts) t.equal(ipVersion(text), isIP(text), text);
  const parts = ['', '1', 'ffff', '1.2.3.4', '12345', ':'];
  for (let number = 0; number < 3_000; number++) {
    const count = 1 + (number % 9);
    const text = Array.from({ length: count }, () => parts[Math.floor(Math.random() * parts.length)]).join(':');
    t.equal(ipVersion(text), isIP(text), text);
  }
});

t.test('a string that looks like a number with digits stays a string', async (t) => {
  const number = new Digits('1.50');
  const texts = ['digits 5', '"digits 5"', 'digits 5", "admin": true, "', '\\"digits ', 'digits '];
  for (const text of texts) {
    const written = writeJson({ number, text, [text]: number });
    t.equal(written, `{"number":1.50,"text":${JSON.stringify(text)},${JSON.stringify(text)}:1.50}`);
    t.match(parseJson(written), { text });
  }
  t.equal(writeJson(texts), JSON.stringify(texts));
});
