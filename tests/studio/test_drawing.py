"""Samples of the studio: those of `lwd sample`, with the states on the way."""

import base64
import io
import shlex

import numpy as np
import pytest
from PIL import Image

import lwd
from lwd.cli import main
from lwd.errors import InputError
from lwd.io.files import write_json
from lwd.studio.drawing import open_side, sample
from lwd.studio.jobs import Cancelled, Job
from lwd.studio.state import read_state
from lwd.studio.takeaway import takeaway
from messages import says
from studio.made import state

DRAWN = lwd.PiecewiseLinear((0, 0.5, 1), {"texture": (0, 0.3, 1), "semantic": (0, 0.5, 1)})
GUIDED = {"guide": "fashion-weak", "scale": {"texture": 1.5, "semantic": 1.2}, "interval": {"texture": [0.1, 0.9]}}
SIDES = {
    "own, all classes": {"schedule": lwd.LWDPipeline.from_pretrained("fashion").checkpoint.schedule.to_dict()},
    "a word, without a label": {"schedule": lwd.Offset(0.25).to_dict(), "guide": "null", "scale": {"texture": 2.0}},
    "drawn, guided": {"schedule": DRAWN.to_dict(), "steps": 6, "solver": "heun"} | GUIDED,
    "adaptive": {"schedule": DRAWN.to_dict(), "solver": "dopri5"},
    "placed": {"schedule": DRAWN.to_dict(), "steps": 5, "placement": "semantic"},
}


def pixels(uri):
    image = Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))
    return np.asarray(image.convert("RGB"))


LONG = {"adaptive": [pytest.mark.slow], "drawn, guided": [pytest.mark.slow]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, [])) for name in SIDES])
def test_the_command_and_the_python_lines_draw_the_same_images(studio, name, tmp_path, monkeypatch):
    """Oracle: bytes; the command runs as it is printed, beside the downloaded schedule."""
    one = read_state(state(a=SIDES[name], label="" if "all" in name else "ankle boot", seed=5))
    found = sample(studio.catalog, one, ["A"], Job())["sides"]["A"]
    took = takeaway(studio.catalog, one, "A")
    monkeypatch.chdir(tmp_path)
    assert took["needs_file"] is (SIDES[name]["schedule"]["kind"] == "piecewise_linear")
    write_json(tmp_path / took["file"], took["schedule"])
    command = shlex.split(took["command"])
    assert command[0] == "lwd"
    assert main(command[1:]) == 0
    written = np.stack([np.asarray(Image.open(tmp_path / "samples" / "images" / f"{i:06}.png")) for i in range(2)])
    names: dict = {}
    exec(took["python"], names)
    shown = np.stack([pixels(image) for image in found["images"]])
    assert (shown == written).all()
    assert (shown == names["pixels"]).all()
    assert found["evaluations"] == np.mean(names["evaluations"])


def test_states_run_from_the_same_noise_to_the_images(studio):
    """Oracle: tau 0 is equal for both settings, tau 1 decodes to the images, times are the schedule's."""
    one = read_state(state(a={"steps": 4}, b={"schedule": DRAWN.to_dict(), "steps": 5}))
    found = sample(studio.catalog, one, ["A", "B"], Job())
    a, b = found["sides"]["A"], found["sides"]["B"]
    assert a["tau"] == [0, 0.25, 0.5, 0.75, 1]
    assert len(b["tau"]) == 6
    sheets = {name: {g: pixels(sheet) for g, sheet in side["sheets"].items()} for name, side in found["sides"].items()}
    size = 28
    for group, cell in (("texture", size), ("semantic", 4)):
        assert sheets["A"][group].shape == (2 * cell, 5 * cell, 3)
        assert (sheets["A"][group][:, :cell] == sheets["B"][group][:, :cell]).all()
        assert (sheets["A"][group][:, -cell:] != sheets["B"][group][:, -cell:]).any()
    for name, side in found["sides"].items():
        last = sheets[name]["texture"][:, -size:]
        shown = np.concatenate([pixels(image) for image in side["images"]])
        assert np.abs(last.astype(int) - shown).max() <= 1  # the decoder rounds by the size of its batch
    assert found["labels"] == ["T-shirt", "trouser"]


def test_many_steps_keep_few_states(studio):
    one = read_state(state(a={"steps": 45}, count=1))
    tau = sample(studio.catalog, one, ["A"], Job())["sides"]["A"]["tau"]
    assert len(tau) == 41
    assert (tau[0], tau[-1]) == (0, 1)


def test_three_groups_without_a_decoder_are_shown_as_colours(studio, three):
    schedule = lwd.Cascade(("texture", "depth", "semantic")).to_dict()
    one = read_state(state(three, a={"schedule": schedule}, b={"schedule": schedule}, label="3"))
    drawn = sample(studio.catalog, one, ["A"], Job())
    found = drawn["sides"]["A"]
    assert drawn["labels"] == ["3", "3"]
    assert "--label 3" in takeaway(studio.catalog, one, "A")["command"]
    assert found["images"] is None
    assert set(found["sheets"]) == set(found["times"]) == {"texture", "depth", "semantic"}


def test_cancel_stops_within_an_evaluation(studio):
    """Oracle: the number of evaluations after the cancel is none."""
    calls = []

    class Once(Job):
        def report(self, share):
            calls.append(share)
            if len(calls) == 4:
                self.cancel()
            super().report(share)

    with pytest.raises(Cancelled):
        sample(studio.catalog, read_state(state(a={"steps": 50})), ["A"], Once())
    assert len(calls) == 4


def test_decoding_the_states_can_be_cancelled(studio):
    """Oracle: the reports after the last evaluation."""

    class Late(Job):
        after = 0

        def report(self, share):
            if self.text == "decoding the states":
                Late.after += 1
                if share > 0:
                    self.cancel()
            super().report(share)

    with pytest.raises(Cancelled):
        sample(studio.catalog, read_state(state(a={"steps": 4})), ["A"], Late())
    assert Late.after == 3  # the stage, the first state, and the second, which was refused


@pytest.mark.parametrize("name", ["smooth", "solve"])
def test_smoothing_and_solving_can_be_cancelled(studio, name):
    """Oracle: the reports; there are none after the cancel, and the first lambda takes hundreds."""
    calls = []

    class Soon(Job):
        def report(self, share):
            calls.append(share)
            if len(calls) == 5:
                self.cancel()
            super().report(share)

    unsolved = studio.catalog.names[2]
    work = studio.works[name]({"model": unsolved, "schedule": DRAWN.to_dict()})
    with pytest.raises(Cancelled):
        work(Soon())
    assert len(calls) == 5


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"label": "/etc/passwd"}, ("/etc/passwd", "bag")),
        ({"a": {"schedule": DRAWN.to_dict(), "steps": 1}}, ("steps", 2)),
        ({"a": {"schedule": DRAWN.to_dict(), "guide": "/etc"}}, ("/etc", "fashion")),
        ({"a": {"schedule": DRAWN.to_dict(), "placement": "/etc/passwd"}}, ("/etc/passwd", "semantic")),
        ({"a": {"schedule": DRAWN.to_dict(), "guide": "null", "scale": {"/etc": 2.0}}}, ("/etc", "texture")),
        ({"model": "/etc"}, ("/etc", "fashion")),
    ],
)
def test_paths_in_fields_are_errors(studio, changes, facts):
    with pytest.raises(InputError, match=says(facts)):
        sample(studio.catalog, read_state(state() | changes), ["A"], Job())


def test_a_guide_must_fit_the_model(studio, three):
    one = read_state(state(a={"guide": str(three), "scale": {"texture": 2.0}}))
    with pytest.raises(InputError):
        open_side(studio.catalog, studio.catalog.open("fashion"), one, one.a)
