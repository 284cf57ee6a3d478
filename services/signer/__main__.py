from assay_runtime.service import main
from services.signer.app import NAME, build
from services.signer.settings import SignerSettings

main(NAME, SignerSettings, build)
