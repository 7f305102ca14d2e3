"""Check a directory of shards against its manifest (`lwd data verify`)."""

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from lwd.compute.moments import ChannelMoments
from lwd.errors import InputError
from lwd.io.files import sha256
from lwd.latents.formats import Manifest, ShardLine
from lwd.latents.reader import LatentReader
from lwd.latents.shards import FEATURES, FLIP, Shard, open_shard, read_manifest

TOLERANCE = 1e-5
"""Relative tolerance for recomputed statistics, which are stored in float32."""


def verify(directory: str | os.PathLike[str]) -> list[str]:
    """Return a list of problems of a directory of shards; empty if it is intact."""
    directory = Path(directory)
    if not directory.is_dir():
        return [f"{directory} is not a directory of shards"]
    try:
        manifest = read_manifest(directory)
    except InputError as error:
        return [str(error)]
    if manifest is None:
        return [f"{directory} has no manifest.json, so there are no checksums to verify"]
    listed = {line.file for line in manifest.shards}
    found = sorted(directory.glob("*.safetensors"))
    problems = [f"{path} is not in the manifest" for path in found if path.name not in listed]
    reader, moments = None, defaultdict[str, ChannelMoments](ChannelMoments)
    try:
        reader = _full_reader(directory)
        problems += _verify_names(directory, manifest, reader)
    except InputError as error:
        problems.append(str(error))
    for number, line in enumerate(manifest.shards):
        wrong = _verify_file(directory / line.file, line)
        problems += [problem for problem in wrong if problem not in problems]
        if reader and not wrong:
            problems += _verify_numbers(reader.shards[number], moments)
    # If shards are changed or missing, wrong statistics are no news.
    return problems + (_verify_statistics(directory, reader, moments) if reader and not problems else [])


def _full_reader(directory: Path) -> LatentReader:
    reader = LatentReader(directory)
    with_features = any(FEATURES in shard.entries for shard in reader.shards)
    return LatentReader(directory, features=True) if with_features else reader


def _verify_names(directory: Path, manifest: Manifest, reader: LatentReader) -> list[str]:
    problems = []
    for key in reader.shards[0].entries:
        if key.startswith("latents") and key.removesuffix(FLIP) not in reader.keys.values():
            problems.append(f"{reader.shards[0].path} has {key!r}, which the manifest's layout ({reader.layout}) lacks")
    names = manifest.provenance.get("classes")
    if isinstance(names, list) and len(names) != reader.classes:
        problems.append(f"{directory}: the manifest has {reader.classes} classes and {len(names)} class names")
    return problems


def _verify_file(path: Path, line: ShardLine) -> list[str]:
    try:
        count = open_shard(path).count
    except InputError as error:
        return [str(error)]
    if count != line.count:
        return [f"{path} has {count} images, but the manifest lists {line.count}"]
    return [] if sha256(path) == line.sha256 else [f"{path} was changed: its checksum differs from the manifest"]


def _verify_numbers(shard: Shard, moments: Mapping[str, ChannelMoments]) -> list[str]:
    """Add the latents and features of a shard to the moments of their keys, 100 rows at a time."""
    problems, content = [], shard.bytes()
    for key in shard.entries:
        if not key.startswith(("latents", FEATURES)):
            continue
        try:
            for low in range(0, shard.count, 100):
                moments[key.removesuffix(FLIP)].update(shard.read(key, content, slice(low, low + 100)))
        except InputError as error:
            problems.append(f"{shard.path}: {key!r}: {error}")
    return problems


def _verify_statistics(directory: Path, reader: LatentReader, moments: Mapping[str, ChannelMoments]) -> list[str]:
    """Compare the manifest's mean and std with those of the latents and their mirrored copies, if any."""
    problems = []
    for group, key in reader.keys.items():
        found = moments[key]
        for name, value, listed in (
            ("mean", found.mean, reader.statistics.mean[group]),
            ("std", found.std, reader.statistics.std[group]),
        ):
            wrong = (value - listed).abs() > TOLERANCE * (found.std + value.abs())
            if wrong.any():
                at = int(wrong.nonzero()[0])
                problems.append(
                    f"{directory}: the manifest's {name} of {group!r} is wrong: "
                    f"{listed[at]:.6g} for channel {at}, but the latents have {value[at]:.6g}"
                )
    return problems
