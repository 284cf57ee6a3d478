from assay_runtime.service import main
from services.evidence.app import NAME, build
from services.evidence.settings import EvidenceSettings

main(NAME, EvidenceSettings, build)
