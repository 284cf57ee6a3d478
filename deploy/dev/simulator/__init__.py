"""A model that is none: Ollama and OpenAI over HTTP, answers to any JSON Schema, faults on request.

Everything it answers is labelled `simulator`. It serves the demo, the tests and the benchmarks
(DESIGN §5).
"""

from deploy.dev.simulator.server import Simulator
from deploy.dev.simulator.settings import FAULTS, PROFILES, Behaviour

__all__ = ["FAULTS", "PROFILES", "Behaviour", "Simulator"]
