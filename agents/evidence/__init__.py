"""Evidence: AEP records that can be checked by anyone who has the public key.

`canonical` decides the bytes, `signing` signs and links them, `dsse` wraps them for in-toto, `structure` defines a
well-formed record, `chain` follows the links between records, `verify` combines the layers. All of these are pure;
`keys` is the adapter that reads and writes key files.
"""
