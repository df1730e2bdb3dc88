CREATE TABLE new_people (
    id INTEGER PRIMARY KEY,
    given_name TEXT NOT NULL,
    family_name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE
);
INSERT INTO new_people
SELECT id, rtrim(rtrim(name, replace(name, ' ', ''))), substr(name, length(rtrim(name, replace(name, ' ', ''))) + 1), email
FROM people;
DROP TABLE people;
ALTER TABLE new_people RENAME TO people;
