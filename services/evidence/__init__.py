"""Evidence: keeps every record of every topic, once, with the bytes it came in.

Consumes all topics and their dead letters. Produces nothing. Guarantees that a record whose
offset is committed is stored, in the transaction that stores the offset; that pages are redacted
unless the full-text token is shown; that what is erased keeps its hash and never comes back.
"""
