-- A request that comes again is answered with what its sender may read now: the keys of the items are kept, not what was shown
-- of them. Receipts that were made before keep the answer: the keys are taken from it, as far as it shows them.

alter table service_receipts rename column body to answer;
alter table service_receipts add column keys json;

comment on column service_receipts.keys is 'Of the items that the request has made, in its order';
