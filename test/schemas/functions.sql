-- Functions of every form over library.sql, and the rows that expose them; what is not named in service_functions stays hidden.
create schema api;

create function add(a integer, b integer default 10) returns integer language sql immutable as 'select a + b';
create function echo(number bigint default null, digits numeric default null, moment timestamptz default null, day date default null,
    flag boolean default null, document jsonb default null, key uuid default null, words text default null)
  returns table (number bigint, digits numeric, moment timestamptz, day date, flag boolean, document jsonb, key uuid, words text)
  language sql stable as 'select number, digits, moment, day, flag, document, key, words';
create function total(variadic numbers integer[]) returns bigint language sql immutable
  as 'select coalesce(sum(n), 0) from unnest(numbers) n';
create function joined_words(glue text, variadic words text[]) returns text language sql immutable
  as 'select array_to_string(words, glue)';
create function numbers(up_to integer) returns setof integer language sql stable as 'select generate_series(up_to, 1, -1)';
create function spread(values_of integer[], out low integer, out high integer) language sql stable
  as 'select min(n), max(n) from unnest(values_of) n';
create function only_column() returns table (id integer) language sql stable as 'values (1), (2)';
create function nothing() returns void language sql stable as 'select';
create function null_number() returns integer language sql stable as 'select null::integer';

create type mood as enum ('calm', 'wild');
create type place as (name text, size bigint);
create function mood_of(given mood) returns text language sql immutable as 'select given::text';
create function grow(given place, by bigint default 1) returns place language sql stable as 'select row(given.name, given.size + by)::place';
create function places() returns setof place language sql stable as $$values (row('a', 1)::place), (row('b', 9007199254740993)::place)$$;
create function no_place() returns place language sql stable as 'select null::place';

create function area(side integer) returns text language sql immutable as $$select 'square ' || side * side$$;
create function area(width integer, height integer) returns text language sql immutable as $$select 'rectangle ' || width * height$$;
create function area(radius integer, exact boolean default false) returns text language sql immutable
  as $$select 'circle ' || radius || exact$$;
create function twin(value integer) returns text language sql immutable as $$select 'integer'$$;
create function twin(value text) returns text language sql immutable as $$select 'text'$$;

create function articles_of(writer integer) returns setof articles language sql stable
  as 'select * from articles where author = writer';
create function most_read(at_least integer default 0) returns setof articles language sql stable
  as 'select * from articles where views >= at_least order by views desc, id';
create function article_titled(title text) returns articles language sql stable
  as 'select * from articles where articles.title = article_titled.title';
create function imagined() returns setof articles language sql stable
  as $$select 1000 + n, 'Imagined ' || n, null, null, 'draft', n, null::numeric, null::timestamptz, null::json, 1 from generate_series(1, 3) n$$;

create function publish(article integer) returns articles language sql volatile
  as $$update articles set status = 'published' where id = article returning *$$;
create function write_article(title text, writer integer, comment text default null) returns setof articles language plpgsql volatile as $$
declare
  made integer;
begin
  insert into articles (title, author) values (title, writer) returning id into made;
  insert into comments (body, article) select comment, made where comment is not null;
  return query select * from articles where id = made;
end
$$;
create function remove_drafts() returns setof articles language sql volatile
  as $$delete from articles where status = 'draft' and views = 50 returning *$$;
create function count_up() returns bigint language sql volatile as $$select nextval('tags_id_seq')$$;
create function refuse(reason text, code text default 'P0001') returns integer language plpgsql stable as $$
begin
  raise exception using errcode = code, message = reason;
end
$$;
create function refuse_write(reason text) returns integer language plpgsql volatile as $$
begin
  insert into tags (name) values ('undone');
  raise exception using message = reason;
end
$$;
create function break_rule() returns void language sql volatile as $$insert into authors (name, email) values ('Twin', 'ada@example.com')$$;
create function divide(a integer, b integer) returns integer language sql immutable as 'select a / b';
create function secret() returns text language sql stable as $$select 'nobody exposes me'$$;
create function api.elsewhere() returns text language sql stable as $$select 'in another schema'$$;
create function unnamed(integer) returns integer language sql stable as 'select $1';
create function anything(value anyelement) returns text language sql stable as 'select value::text';
create function rows_of_record() returns setof record language sql stable as 'select 1, 2';
create function search_all("limit" integer, filter text) returns text language sql stable as $$select "limit" || filter$$;

insert into service_functions (name, schema, function, arguments)
  select proname, null, null, null from (
    select distinct proname from pg_proc where pronamespace = 'public'::regnamespace
      and proname not like 'service\_%' and proname <> 'secret'
  ) functions;
insert into service_functions (name, schema, function, arguments) values
  ('elsewhere', 'api', null, null),
  ('renamed', null, 'add', '["a"]'),
  ('missing', null, null, null),
  ('version', 'pg_catalog', null, null),
  ('needs_hidden', null, 'add', '["b"]');

create function loud(authors) returns text language sql stable as 'select upper($1.name)';
insert into service_fields (collection, field, special) values ('authors', 'loud', 'computed');
