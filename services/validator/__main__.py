from assay_runtime.service import main
from services.validator.app import NAME, build
from services.validator.settings import ValidatorSettings

main(NAME, ValidatorSettings, build)
