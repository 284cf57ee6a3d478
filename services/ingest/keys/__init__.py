"""API keys: who may ask, how often, and how keys are made and withdrawn (SPEC S5.1)."""
