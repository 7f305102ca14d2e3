"""`lwd encode`."""

import argparse
import os
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "encode",
        help="images to shards of texture and semantic latents",
        description="Turn images into shards of latents. Run again to continue; torchrun shares the work.",
        epilog="example: lwd encode cifar10/train --texture ae --semantic resnet50:4@64 --compress pca --out latents",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="cifar10/train, cifar10/test, or a directory with one folder per class")
    add("--texture", required=True, metavar="DIR", help="the texture autoencoder (ours, or diffusers' AutoencoderKL)")
    add(
        "--semantic", required=True, metavar="NAME", help="resnet50:4@64, or a DINOv2 or CLIP model (hub id, directory)"
    )
    add("--compress", required=True, metavar="DIR", help="the compressor of its features (PCA or SemVAE)")
    add("--out", required=True, metavar="DIR", help="where the shards go")
    add("--size", type=int, default=0, metavar="PX", help="crop and scale images to this size")
    add("--shard-size", type=int, default=1000, metavar="N", help="images per shard (default 1000)")
    add("--batch", type=int, default=50, metavar="N", help="images at once (default 50)")
    add("--dtype", default="float32", help="float32 (default), float16 or bfloat16")
    add("--features", action="store_true", help="keep the encoder's features for alignment")
    add("--skip-bad", action="store_true", help="leave out images that cannot be read")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from lwd.data.catalog import open_source
    from lwd.encode import Encoders, EncodeSettings, encode, load_compressor
    from lwd.files import check_writable
    from lwd.representations.encoders import load_encoder
    from lwd.representations.texture import TextureAutoencoder

    settings = EncodeSettings(
        arguments.shard_size, arguments.batch, arguments.dtype, arguments.features, arguments.skip_bad, arguments.size
    )
    source, encoder = open_source(arguments.source), load_encoder(arguments.semantic)
    record = {"texture": arguments.texture, "semantic": encoder.identity, "compressor": arguments.compress}
    texture, compressor = TextureAutoencoder.load(arguments.texture), load_compressor(arguments.compress)
    check_writable(arguments.out)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    with tqdm(total=-(-len(source) // world), desc="encoding", unit="image", disable=None) as bar:
        encoders = Encoders(texture, encoder, compressor, record)
        print(encode(source, arguments.out, encoders, settings, rank, world, bar.update))
    return 0
