"""Solvers that `lwd bench sampler` recommends for a model, stored with it and used by default."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lwd.checkpoints.formats import Recommendation, SamplingFile
from lwd.io.files import RECOMMENDED


def read_recommended(directory: Path) -> tuple[Recommendation, ...]:
    """Read the recommendations in a model directory; none if there are none."""
    path = directory / RECOMMENDED
    return tuple(SamplingFile.read(path).recommended) if path.is_file() else ()


def write_recommended(directory: Path, recommended: Sequence[Recommendation]) -> None:
    """Write the recommendations of a model, if there are any."""
    if recommended:
        SamplingFile(recommended=list(recommended)).write(directory / RECOMMENDED)


def store_recommended(directory: Path, new: Recommendation) -> None:
    """Store a recommendation with a model, in place of an older one for the same guidance."""
    others = [old for old in read_recommended(directory) if guidance(old) != guidance(new)]
    write_recommended(directory, [*others, new])


def guidance(one: Recommendation) -> dict[str, Any]:
    return {"guide": one.guide, "scale": one.scale, "interval": one.interval}


def guidance_of(guide: Any, scale: Any, interval: Any) -> dict[str, Any]:
    """Guidance as it is compared: none, a weak model or null, its scale and interval."""
    kind = "" if guide is None else "null" if isinstance(guide, str) and guide == "null" else "weak"
    return {"guide": kind, "scale": scale, "interval": interval}


def find_recommended(
    recommended: Sequence[Recommendation], guide: Any, scale: Any, interval: Any
) -> Recommendation | None:
    """The recommendation for this guidance, if there is one."""
    wanted = _plain(guidance_of(guide, scale, interval))
    return next((one for one in recommended if _plain(guidance(one)) == wanted), None)


def _plain(value: Any) -> Any:
    """Without the difference between lists and tuples, or between 1 and 1.0."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
