-- Columns are changed in place: rebuilding the table would fire ON DELETE CASCADE on orders.
ALTER TABLE people ADD COLUMN given_name TEXT NOT NULL DEFAULT '';
ALTER TABLE people ADD COLUMN family_name TEXT NOT NULL DEFAULT '';
-- What is left of the name without its trailing non-space characters ends at the last space.
UPDATE people SET given_name = rtrim(rtrim(name, replace(name, ' ', ''))) WHERE name LIKE '% %';
UPDATE people SET family_name = substr(name, length(rtrim(name, replace(name, ' ', ''))) + 1) WHERE name LIKE '% %';
UPDATE people SET given_name = name WHERE name NOT LIKE '% %';
ALTER TABLE people DROP COLUMN name;
