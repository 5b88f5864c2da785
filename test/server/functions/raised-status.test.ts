/** POSTGREST_ERRORS: the status that functions and triggers ask for by `raise sqlstate 'PTxyz'`. */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'raised');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table orders (id serial primary key, amount integer);
  create function refuse(code text) returns integer language plpgsql volatile as $$
  begin raise exception using errcode = code, message = 'Payment required', detail = 'Quota exceeded', hint = 'Upgrade your plan'; end $$;
  create function look() returns integer language plpgsql stable as $$
  begin raise sqlstate 'PT404' using message = 'No such order'; end $$;
  create function guard() returns trigger language plpgsql as $$
  begin if new.amount > 10 then raise sqlstate 'PT409' using message = 'Too much'; end if; return new; end $$;
  create trigger guard before insert on orders for each row execute function guard()`);
const plain = await startTestService({ databaseUrl });
await sql`insert into service_functions (name) values ('refuse'), ('look')`;
await plain.stop();

const [off, on] = await Promise.all([
  startTestService({ databaseUrl }),
  startTestService({ databaseUrl, POSTGREST_ERRORS: 'true' }),
]);

function post(to: { readonly url: string }, path: string, body: unknown): Promise<Answer> {
  return request(to, 'POST', path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
}

t.test('a function chooses the status', async (t) => {
  t.match(await post(on, '/rpc/refuse', { code: 'PT402' }), {
    status: 402,
    json: {
      errors: [
        {
          message: 'Payment required',
          extensions: { code: 'FAILED_VALIDATION', details: 'Quota exceeded', hint: 'Upgrade your plan' },
        },
      ],
    },
  });
  t.match(await post(off, '/rpc/refuse', { code: 'PT402' }), { status: 400 });
  const statuses: number[] = [];
  for (const code of ['PT401', 'PT403', 'PT422', 'PT429', 'PT500', 'PT503', 'PT599'])
    statuses.push((await post(on, '/rpc/refuse', { code })).status);
  t.strictSame(statuses, [401, 403, 422, 429, 500, 503, 599]);
  for (const code of ['PT200', 'PT304', 'PT600', 'PTxyz', 'P0001'])
    t.equal((await post(on, '/rpc/refuse', { code })).status, 400, code);
  t.match(await request(on, 'GET', '/rpc/look'), {
    status: 404,
    json: { errors: [{ message: 'No such order', extensions: { code: 'ROUTE_NOT_FOUND' } }] },
  });
});

t.test('a trigger chooses the status', async (t) => {
  t.match(await post(on, '/items/orders', { amount: 11 }), {
    status: 409,
    json: { errors: [{ message: 'Too much' }] },
  });
  t.equal((await post(off, '/items/orders', { amount: 11 })).status, 400);
  t.equal((await post(on, '/items/orders', { amount: 1 })).status, 200);
  const mutation = { query: 'mutation { create_orders_item(data: { amount: 12 }) { id } }' };
  t.match(await post(on, '/graphql', mutation), { status: 200, json: { errors: [{ message: 'Too much' }] } });
});

t.test('GraphQL has the same extensions as REST', async (t) => {
  const errorsOf = ({ json }: Answer): unknown =>
    (json as { errors: { message: string; extensions: object }[] }).errors.map(({ message, extensions }) => ({
      message,
      extensions,
    }));
  for (const service of [on, off])
    for (const code of ['PT402', 'PT404', 'PT429', 'P0001']) {
      const query = `mutation { refuse(code: "${code}") }`;
      const answer = await post(service, '/graphql', { query });
      t.strictSame(errorsOf(answer), errorsOf(await post(service, '/rpc/refuse', { code })), `${code} ${answer.text}`);
    }
  const looked = await post(on, '/graphql', { query: '{ look }' });
  t.match(looked, { json: { errors: [{ message: 'No such order', extensions: { code: 'ROUTE_NOT_FOUND' } }] } });
});
