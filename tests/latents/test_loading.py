"""Images for encoding: read by workers or not, the same bytes; the checksum of the source once for a machine."""

import multiprocessing

import numpy as np
import pytest
from PIL import Image

import lwd
from latents.toy import SETTINGS, content, encoders, pictures
from lwd.images.loading import Loader, Unreadable, read_images
from lwd.images.sources import FolderSource
from lwd.latents.encode import encode
from messages import says


def folder(root, count=23):
    for i, pixels in enumerate(pictures(count).images):
        path = root / "ab"[i % 2] / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return FolderSource(root)


@pytest.mark.slow
def test_workers_do_not_change_a_byte(tmp_path):
    """Oracle: the same folder without workers, with an unreadable image in it; the workers end with the job."""
    source = folder(tmp_path / "images")
    (tmp_path / "images" / "a" / "004.png").write_bytes(b"no image")
    for name, workers in (("alone", 0), ("workers", 2)):
        settings = SETTINGS.changed(skip_bad=True, workers=workers)
        assert says("004.png").search(encode(source, tmp_path / name, encoders(), settings))
    assert content(tmp_path / "alone") == content(tmp_path / "workers")
    with pytest.raises(lwd.InputError, match=says("004.png", "skip_bad")):
        encode(source, tmp_path / "strict", encoders(), SETTINGS.changed(workers=1))
    assert not multiprocessing.active_children()


def test_images_are_cropped_and_the_unreadable_are_named(tmp_path):
    """Oracle: the images themselves."""
    source = folder(tmp_path, 4)
    (tmp_path / "b" / "001.png").write_bytes(b"no image")
    found = read_images(source, range(4), 8)
    assert [getattr(image, "shape", None) for image in found] == [(8, 8, 3), (8, 8, 3), None, (8, 8, 3)]
    assert isinstance(found[2], Unreadable)
    assert found[2].name == "b/001.png"
    loader = Loader(pictures(5), 0, workers=3)  # an array needs no workers
    loader.announce(0, 5)
    assert np.array_equal(np.stack(loader.read(1, 5)), pictures(5).images[1:])
    loader.close()


def test_one_process_of_a_machine_computes_the_checksum(tmp_path, monkeypatch):
    """Oracle: calls of `digest`; the manifest of a single process."""
    calls = []

    class Counted(FolderSource):
        def digest(self):
            calls.append(1)
            return super().digest()

    folder(tmp_path / "images")
    encode(Counted(tmp_path / "images"), tmp_path / "one", encoders(), SETTINGS)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    calls.clear()
    for rank in range(2):
        encode(Counted(tmp_path / "images"), tmp_path / "two", encoders(), SETTINGS, (rank, 2))
    assert len(calls) == 1
    assert content(tmp_path / "one") == content(tmp_path / "two")
