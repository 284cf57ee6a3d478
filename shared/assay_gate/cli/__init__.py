"""Pipe filters of the gate, added to the `assay` command by entry point (SPEC S4.11)."""
