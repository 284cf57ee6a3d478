"""placeholder"""
from collections.abc import Mapping
from typing import Any
class Rules:
    def __init__(self, config: Mapping[str, Any], *, config_: Any = None) -> None: ...
    def check(self, record: Any, unit_id: str) -> Any:
        return [], []
