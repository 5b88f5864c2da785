-- A request that comes again is answered with what its sender may read now: the keys of the items are kept, not what was shown
-- of them. Of receipts that were made before, nothing is shown any more.

alter table service_receipts drop column body;
alter table service_receipts add column keys json;

comment on column service_receipts.keys is 'Of the items that the request has made, in its order';
