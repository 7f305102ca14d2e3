"""One process of a fit: `python fit_worker.py KIND OUT LOG '{"steps": 12}'`; rank 0 logs its losses."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from test_fit import ENCODER, waves

from lwd.representations import descent
from lwd.representations.fit import fit_pca, fit_semvae, fit_texture
from lwd.representations.settings import FitSettings, SemVAESettings, TextureSettings

COMMON = {"channels": 4, "batch": 8, "held_out": 20}

if __name__ == "__main__":
    kind, out, log, changes = sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4])
    descent.KEEP_EVERY = 5
    stop = changes.pop("stop", 0)
    lines = []

    def progress(step, loss):
        lines.append(loss)
        if stop and step == stop:
            os._exit(9)

    if kind == "pca":
        report = fit_pca(waves(), ENCODER, (4, 4), out, FitSettings(**COMMON | changes), progress=progress)
    elif kind == "texture":
        settings = TextureSettings(**COMMON | {"steps": 12, "width": 32, "depth": 1} | changes)
        report = fit_texture(waves(), out, settings, progress=progress)
    else:
        small = {"steps": 12, "width": 16, "heads": 1, "depth": 1, "loaders": 1}
        report = fit_semvae(
            waves(), ENCODER, (4, 4), out, SemVAESettings(**COMMON | small | changes), progress=progress
        )
    if os.environ.get("RANK", "0") == "0":
        log.write_text(json.dumps({"losses": lines, "report": report}))
