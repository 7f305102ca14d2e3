"""Sets of samples as bytes."""

import numpy as np
from PIL import Image


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def picture(path):
    with Image.open(path) as opened:
        return np.asarray(opened)
