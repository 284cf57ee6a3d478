"""Instances of any JSON Schema (Draft 2020-12), deterministic in a seed and verified."""

from deploy.dev.simulator.instances.document import BadSchema
from deploy.dev.simulator.instances.failures import NoInstance
from deploy.dev.simulator.instances.generator import SchemaAnswers

__all__ = ["BadSchema", "NoInstance", "SchemaAnswers"]
