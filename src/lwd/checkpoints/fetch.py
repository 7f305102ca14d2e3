"""Published models from the hub into the cache: download, check, convert; complete or not there at all."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lwd.checkpoints.convert import Converted, Options, read_network
from lwd.checkpoints.formats import OriginFile, OriginPart
from lwd.checkpoints.published import (
    Published,
    PublishedAutoencoder,
    PublishedNetwork,
    PublishedStatistics,
    fetched_directory,
    find_published,
    sampling_of,
)
from lwd.errors import InputError
from lwd.groups import Group, Layout
from lwd.io.files import atomic_directory, cache_dir, check_destination
from lwd.io.hub import Fetched, Repository, open_copy, open_hub
from lwd.io.locks import held
from lwd.io.tensors import read_state
from lwd.latents.statistics import Statistics, read_reference_statistics, save_statistics
from lwd.models.lightningdit import LightningDiTConfig
from lwd.representations.ldm import autoencoder_from_ldm, is_ldm

ORIGIN = "origin.json"
AUTOENCODER = "vae"
CHECKED = ("depth", "width", "heads", "patch", "classes", "grid")
"""What the weights' shapes must say."""


@dataclass(frozen=True)
class Installed:
    """A published model in the cache; `new` if this call put it there."""

    directory: Path
    origin: OriginFile
    new: bool


def fetch(name: str, revision: str | None = None, source: str | os.PathLike[str] | None = None) -> Installed:
    """Put a published model into the cache, with its statistics and autoencoder; do nothing if it is there.

    revision: of the model's own repository (default: the pinned or newest one). source: a local copy of the
    repositories, instead of the hub. An interrupted download is resumed by the next call.
    """
    entry = find_published(name)
    if source is not None and revision is not None:
        raise InputError("a local copy has no revisions; leave revision out", argument="revision")
    directory = fetched_directory(name)
    with held(directory.parent / f".{name}.lock"):
        if (directory / ORIGIN).is_file():
            return Installed(directory, _same(directory, revision), False)
        check_destination(directory)
        downloads = cache_dir() / "downloads" / name
        repository = _open(entry, revision, source, downloads)
        # Before the first byte: whether everything is there.
        paths = {key: repository.find(file.folder, file.path) for key, file in entry.files().items()}
        decoder = fetch(entry.autoencoder, source=source).directory if isinstance(entry, PublishedNetwork) else None
        files = {key: repository.get(path) for key, path in paths.items()}
        origin = _origin(name, entry, repository, files).changed(requested=revision or "")
        _install(entry, directory, files, origin, decoder)
        shutil.rmtree(downloads, ignore_errors=True)
    return Installed(directory, origin, True)


def _open(entry: Published, revision: str | None, source: str | os.PathLike[str] | None, downloads: Path) -> Repository:
    first = next(iter(entry.files().values()))
    if source is not None:
        return open_copy(first.repository, source)
    return open_hub(first.repository, revision or first.revision, downloads)


def _same(directory: Path, revision: str | None) -> OriginFile:
    """Return the origin of the fetched model; another revision than the requested one is an error."""
    origin = OriginFile.read(directory / ORIGIN)
    short = revision is not None and len(revision) >= 7 and origin.revision.startswith(revision)
    if revision not in (None, origin.requested) and not short:
        there = origin.revision or "a local copy"
        raise InputError(
            f"{directory} holds revision {there}, not {revision}; remove it and run again", argument="revision"
        )
    return origin


def _origin(name: str, entry: Published, repository: Repository, files: Mapping[str, Fetched]) -> OriginFile:
    return OriginFile(
        name=name,
        repository=next(iter(entry.files().values())).repository,
        revision=repository.revision,
        files={one.path: OriginPart(size=one.size, sha256=one.sha256) for one in files.values()},
    )


def _install(
    entry: Published, directory: Path, files: Mapping[str, Fetched], origin: OriginFile, decoder: Path | None
) -> None:
    """Convert into `directory`, atomically."""
    if isinstance(entry, PublishedNetwork):
        network = _network(entry, files, origin)
        with atomic_directory(directory) as folder:
            network.write(folder, sampling_of(origin.name), published=origin.to_dict())
            if decoder is not None:
                shutil.copytree(decoder, folder / AUTOENCODER, copy_function=_link)
            origin.write(folder / ORIGIN)
    elif isinstance(entry, PublishedAutoencoder):
        with atomic_directory(directory) as folder:
            _write_autoencoder(entry, files["weights"], origin, folder)
            origin.write(folder / ORIGIN)
    elif isinstance(entry, PublishedStatistics):
        with atomic_directory(directory) as folder:
            _write_statistics(entry, files, folder)
            origin.write(folder / ORIGIN)


def _network(entry: PublishedNetwork, files: Mapping[str, Fetched], origin: OriginFile) -> Converted:
    """Convert the network and compare it with the catalog."""
    weights, layout = files["weights"], _layout(entry.groups)
    _read_statistics(entry, files)
    statistics = {group: str(files[group].local) for group in entry.groups}
    options = Options(layout=layout, schedule=entry.schedule, statistics=statistics)
    where = f"{weights.path} of {origin.repository}"
    state = read_state(weights.local)
    try:
        network = read_network(weights.path, state, options)
    except InputError as error:
        raise InputError(f"{where} is not {origin.name} ({entry.size}): {error}") from error
    wanted = LightningDiTConfig.of(entry.size, layout, classes=entry.classes, grid=entry.grid)
    pairs = {part: (getattr(network.config, part), getattr(wanted, part)) for part in CHECKED}
    wrong = [f"{part} is {found}, must be {must}" for part, (found, must) in pairs.items() if found != must]
    if wrong:
        raise InputError(f"{where} is not {origin.name} ({entry.size}): {'; '.join(wrong)}")
    return network


def _write_autoencoder(entry: PublishedAutoencoder, weights: Fetched, origin: OriginFile, folder: Path) -> None:
    state = read_state(weights.local)
    if not is_ldm(state):
        raise InputError(f"{weights.path} of {origin.repository} is not an LDM-style autoencoder")
    autoencoder = autoencoder_from_ldm(state)
    if autoencoder.channels != entry.channels:
        raise InputError(
            f"{weights.path} of {origin.repository} has {autoencoder.channels} latent channels; {origin.name} must "
            f"have {entry.channels}"
        )
    autoencoder.save(folder)


def _write_statistics(entry: PublishedStatistics, files: Mapping[str, Fetched], folder: Path) -> None:
    """Write statistics.json, and the original files, which `lwd convert` takes."""
    save_statistics(_read_statistics(entry, files), folder / "statistics.json")
    for one in files.values():
        shutil.copy(one.local, folder / Path(one.path).name)


def _read_statistics(entry: PublishedNetwork | PublishedStatistics, files: Mapping[str, Fetched]) -> Statistics:
    """Read the statistics of all groups; errors name their files, not the weights'."""
    statistics = read_reference_statistics({group: files[group].local for group in entry.groups})
    try:
        statistics.check(_layout(entry.groups))
    except InputError as error:
        paths = ", ".join(files[group].path for group in entry.groups)
        raise InputError(f"{paths}: {error}") from error
    return statistics


def _layout(groups: Mapping[str, int]) -> Layout:
    return Layout(tuple(Group(name, channels) for name, channels in groups.items()))


def _link(source: str, target: str) -> str:
    """Link a file where the file system allows it, else copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
    return target
