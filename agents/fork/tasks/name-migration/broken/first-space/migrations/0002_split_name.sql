ALTER TABLE people ADD COLUMN given_name TEXT NOT NULL DEFAULT '';
ALTER TABLE people ADD COLUMN family_name TEXT NOT NULL DEFAULT '';
UPDATE people SET given_name = substr(name, 1, instr(name, ' ') - 1), family_name = substr(name, instr(name, ' ') + 1);
ALTER TABLE people DROP COLUMN name;
