"""Evidence: AEP records that can be checked by anyone who has the public key.

`canonical` decides the bytes, `signing` signs and links them, `dsse` wraps them for the in-toto world, `structure` says
what a well-formed record is, `chain` follows the links between records, `verify` puts the layers together. All of these
are pure; `keys` is the adapter that reads and writes key files.
"""
