/** What callers have written, while the primary is asked where it is: no answer may be taken for a write that came after the question. */
import t from 'tap';
import { UNKNOWN_POSITION } from '../../../src/server/postgres/pools/sessions.js';
import { ReplicaBoard } from '../../../src/speed/replicas/replica-board.js';

const CALLER = 7;

t.test('an unknown position is settled by the answer to a later question', async (t) => {
  const board = new ReplicaBoard(1);
  board.raiseWritten(CALLER, UNKNOWN_POSITION);
  t.equal(board.written(CALLER), UNKNOWN_POSITION);
  board.settleUnknown(board.unknown, 100);
  t.equal(board.written(CALLER), 100);
  board.raiseWritten(CALLER, 150);
  t.equal(board.written(CALLER), 150);
});

t.test('a write between the question and its answer is not settled by it', async (t) => {
  const board = new ReplicaBoard(1);
  board.raiseWritten(CALLER, UNKNOWN_POSITION);
  board.raiseWritten(CALLER + 1, UNKNOWN_POSITION);
  const asked = board.unknown;
  board.raiseWritten(CALLER, 150);
  board.settleUnknown(asked, 100);
  t.equal(board.written(CALLER), UNKNOWN_POSITION, 'it may be behind the answer');
  t.equal(board.written(CALLER + 1), 100, 'that of another caller is settled');
  t.ok(board.unknown > asked, 'there is something to settle');
  board.settleUnknown(board.unknown, 160);
  t.equal(board.written(CALLER), 160);
});

t.test('nor is a write on a new primary that was noted before it is known as one', async (t) => {
  const board = new ReplicaBoard(1, new ReplicaBoard(1).buffer);
  board.raiseWritten(CALLER, 80);
  const asked = board.unknown;
  board.raiseWritten(CALLER, 150);
  board.replacePrimary();
  board.settleUnknown(asked, 100);
  t.equal(board.written(CALLER), UNKNOWN_POSITION);
  board.settleUnknown(board.unknown, 160);
  t.equal(board.written(CALLER), 160);
  t.equal(board.written(CALLER + 1), 0, 'who has written nothing needs nothing');
});
