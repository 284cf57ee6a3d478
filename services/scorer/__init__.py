"""The model stage: a generation request in, what the model said out (DESIGN §5)."""
