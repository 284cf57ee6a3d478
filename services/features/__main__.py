from assay_runtime.service import main
from services.features.app import NAME, build
from services.features.settings import FeaturesSettings

main(NAME, FeaturesSettings, build)
