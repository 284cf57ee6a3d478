"""What a wallet record means: features, the questionnaire as text, the model's input."""

from services.features.domain.extraction import Extraction, extract_wallet_features
from services.features.domain.generation_input import build_generation_input
from services.features.domain.questionnaire import NO_QUESTIONNAIRE, format_questionnaire

__all__ = [
    "NO_QUESTIONNAIRE",
    "Extraction",
    "build_generation_input",
    "extract_wallet_features",
    "format_questionnaire",
]
