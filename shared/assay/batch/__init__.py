"""Batches: units from a file through one process, results in a folder (SPEC S4.5, S4.6, S4.8).

`items` reads units, `requests` makes their events, `step_outcomes` reads what came of them,
`standing` knows how far each unit is, `folder` keeps that on disk, `bus_kafka` is the broker.
"""
