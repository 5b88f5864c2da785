-- Answers to requests that carried an Idempotency-Key. The row is made by the statement that writes, so a request has a
-- receipt if and only if it was carried out.
create table service_receipts (
  id text primary key,
  fingerprint text not null,
  expires timestamp with time zone not null,
  body text
);

comment on column service_receipts.id is 'Digest of the caller and the key';

create index service_receipts_expires_index on service_receipts (expires);

insert into service_collections (collection, hidden, accountability, note) values
  ('service_receipts', true, null, 'Answers to requests with an Idempotency-Key');
