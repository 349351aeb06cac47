-- A database in memory: bulk insert, indices, joins, updates, deletes, and queries over all of it.
CREATE TABLE item (id INTEGER PRIMARY KEY, bucket INTEGER, name TEXT, payload TEXT);
WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 800000)
INSERT INTO item
SELECT n, n * 2654435761 % 1009, printf('item-%08d', n * 48271 % 2147483647),
       printf('%08x%08x%08x%08x', n * 16807 % 2147483647, n * 48271 % 2147483647, n * 69621 % 2147483647, n)
FROM counter;
CREATE INDEX item_by_bucket ON item (bucket, name);
CREATE INDEX item_by_payload ON item (payload);
CREATE TABLE summary AS
SELECT bucket, count(*) AS items, min(name) AS first, max(payload) AS last FROM item GROUP BY bucket;
UPDATE item SET payload = upper(payload) WHERE bucket % 7 = 3;
DELETE FROM item WHERE id % 11 = 5;
SELECT count(*), sum(id), sum(length(payload)) FROM item;
SELECT item.bucket, item.name, summary.items FROM item JOIN summary USING (bucket)
WHERE item.name < 'item-00050000' ORDER BY item.name LIMIT 200;
SELECT substr(payload, 1, 2) AS head, count(*), max(id) FROM item GROUP BY head ORDER BY head;
SELECT * FROM summary ORDER BY bucket LIMIT 50;
SELECT id, payload FROM item ORDER BY payload DESC LIMIT 100;
PRAGMA integrity_check;
