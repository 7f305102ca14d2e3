"""`lwd encode`."""

import argparse
from pathlib import Path
from typing import Any

from lwd.cli.options import add_settings, given
from lwd.cli.progress import bar
from lwd.errors import InputError
from lwd.latents.settings import EncodeSettings


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "encode",
        help="encode images into shards of texture and semantic latents",
        description="Encode images into shards of latents. Run again to continue; use torchrun for several processes.",
        epilog="example: lwd encode cifar10/train --texture ae --semantic resnet50:4@64 --compress pca --out latents",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="fashion/train, cifar10/train, or a directory with one folder per class")
    add("--texture", required=True, metavar="DIR", help="texture autoencoder: from lwd fit, or diffusers' KL or Flux 2")
    text = "resnet50:4@64, a DINOv2 or CLIP model, or embedded; NAME=ENCODER, repeated, for several groups"
    add("--semantic", required=True, action="append", metavar="ENCODER", help=text)
    text = "compressor of the semantic features (PCA or SemVAE); NAME=DIR, repeated, for several groups"
    add("--compress", action="append", metavar="DIR", help=text)
    add("--align", metavar="ENCODER", help="encoder of alignment features (REPA), independent of the semantic latents")
    add("--out", required=True, metavar="DIR", help="directory for the shards")
    names = ("size", "shard_size", "batch", "dtype", "features", "captions", "skip_bad", "workers", "threads")
    add_settings(parser, EncodeSettings, *names, size="PX")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (default: this process's GPU if there is one)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from lwd.compute.devices import choose_device
    from lwd.images.catalog import open_source
    from lwd.io.files import check_writable
    from lwd.io.jobs import process
    from lwd.latents.encode import encode
    from lwd.latents.encoders import Encoders

    settings = EncodeSettings(**given(arguments, EncodeSettings) | ({"features": True} if arguments.align else {}))
    share, device = process(), choose_device(arguments.device)
    if len(arguments.semantic) == 1 and arguments.semantic[0].partition(":")[0] == "embedded":
        return _embedded(arguments)
    if not arguments.compress:
        raise InputError("--semantic needs --compress DIR; create one with lwd fit semantic")
    source = open_source(arguments.source)
    semantic, compress = _named(arguments.semantic), _named(arguments.compress)
    encoders = Encoders.load(arguments.texture, semantic, compress, arguments.align)
    check_writable(arguments.out)
    with bar(-(-len(source) // share[1]), "encoding", shown=share[0] == 0) as shown:
        print(encode(source, arguments.out, encoders, settings, share, shown.update, device))
    return 0


def _named(values: list[str]) -> dict[str, str]:
    """`ENCODER` -> the group semantic; `NAME=ENCODER` -> a group of that name."""
    pairs = [value.split("=", 1) if "=" in value else ["semantic", value] for value in values]
    if empty := next((value for value, pair in zip(values, pairs, strict=True) if not all(pair)), None):
        raise InputError(f"expected NAME=VALUE, such as dino=ENCODER, got {empty!r}")
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise InputError(f"several groups need a name each, such as dino=ENCODER, got {', '.join(values)}")
    return dict(zip(names, (value for _, value in pairs), strict=True))


def _embedded(arguments: argparse.Namespace) -> int:
    from lwd.io.files import model_digest
    from lwd.latents.embedded import encode_embedded
    from lwd.representations.texture import TextureAutoencoder, locate_autoencoder

    source, _, split = arguments.source.partition("/")
    if source != "fashion" or arguments.compress:
        raise InputError("--semantic embedded works only for fashion/train and fashion/test, without --compress")
    if arguments.align or arguments.features:
        raise InputError("the embedded latents have no alignment features; leave out --align and --features")
    _, colon, channels = arguments.semantic[0].partition(":")
    if colon and not channels.isdecimal():
        raise InputError(f"--semantic embedded:N keeps N channels, got {arguments.semantic[0]!r}")
    kept = {"channels": int(channels)} if colon else {}
    place = locate_autoencoder(arguments.texture)
    record = f"{Path(arguments.texture).resolve().name} (files {model_digest(place)})"
    autoencoder = TextureAutoencoder.load(arguments.texture).eval()
    out = encode_embedded(split or "train", autoencoder, arguments.out, record, **kept)
    print(f"{out}: texture latents of {arguments.source}, with the embedded semantic latents")
    return 0
