from assay_runtime.service import main
from services.scorer.app import NAME, build
from services.scorer.settings import ScorerSettings

main(NAME, ScorerSettings, build)
