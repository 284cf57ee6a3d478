from assay_runtime.service import main
from services.ingest.app import NAME, build
from services.ingest.settings import IngestSettings

main(NAME, IngestSettings, build)
