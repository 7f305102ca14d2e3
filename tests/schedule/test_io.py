"""Schedule files: bit-exact round trips, and a sentence for everything that can be wrong with one."""

import copy
import json

import pytest
import torch
from hypothesis import given

import lwd
from messages import says
from strategies import schedules

POLYNOMIAL = lwd.Polynomial([[0.1, -2.0, 1 / 3, 0.7, 1e-17]])


@given(schedules(limit=1e4))
def test_json_round_trip_is_bit_exact(schedule):
    """Oracle: equality of the objects and of every float of the curve."""
    again = lwd.schedule_from_dict(json.loads(json.dumps(schedule.to_dict())))
    assert again == schedule
    assert again.to_dict() == schedule.to_dict()
    tau = torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.times(tau), schedule.times(tau))
    assert torch.equal(again.rates(tau), schedule.rates(tau))


def test_files_round_trip_with_provenance(tmp_path):
    path = tmp_path / "deep" / "schedule.json"
    lwd.save_schedule(POLYNOMIAL, path, provenance={"lambda": 0.04})
    assert lwd.load_schedule(path) == POLYNOMIAL
    assert lwd.load_schedule(path).frozen
    assert json.loads(path.read_text())["provenance"] == {"lambda": 0.04}
    assert [p.name for p in path.parent.iterdir()] == ["schedule.json"]


def test_equality_is_by_value_and_modules_stay_usable_in_sets():
    assert lwd.Polynomial() == lwd.Polynomial()
    assert lwd.Polynomial() != lwd.Polynomial(degree=3)
    assert lwd.Polynomial(groups=("a", "b")) != lwd.Polynomial(groups=("b", "a"), lead="b")
    assert lwd.Offset(0.3) == lwd.Offset(0.3) != lwd.Offset(0.31)
    pair = torch.nn.ModuleList([lwd.Polynomial(), lwd.Polynomial()])
    assert len(list(pair.parameters())) == 2


def test_repr_reads_well():
    assert repr(lwd.Offset(0.3)) == "Offset(delta=0.3, groups=('texture', 'semantic'), lead='semantic')"
    assert repr(lwd.Polynomial(degree=1).freeze()) == (
        "Polynomial(rho={'texture': [0.5413, -6.0]}, groups=('texture', 'semantic'), lead='semantic', frozen)"
    )
    line = lwd.PiecewiseLinear((0, 0.5, 1), {"texture": (0, 0.2, 1), "semantic": (0, 0.7, 1)})
    assert eval(repr(line), {"PiecewiseLinear": lwd.PiecewiseLinear}) == line


def broken(change):
    value = copy.deepcopy(POLYNOMIAL.to_dict())
    change(value)
    return value


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        (broken(lambda v: v.update(format="other")), ("format", "lwd.schedule", "other")),
        ([1, 2], "lwd.schedule"),
        (None, "lwd.schedule"),
        (broken(lambda v: v.update(version=2)), ("version", 2, 1)),
        (broken(lambda v: v.update(version="1")), ("version", "'1'")),
        (broken(lambda v: v.pop("version")), "version"),
        (broken(lambda v: v.update(kind="polynom")), ("polynom", "polynomial")),
        (broken(lambda v: v.update(kind=[])), "kind"),
        (broken(lambda v: v.pop("rho")), "rho"),
        (broken(lambda v: v.update(rhos=1)), ("rhos", "rho")),
        (broken(lambda v: v["rho"].update(texture=[0.0, float("nan"), 0, 0, 0])), ("rho.texture.1", "nan")),
        (broken(lambda v: v["rho"].update(texture=[0.0] * 4)), ("rho", 5, 4)),
        (broken(lambda v: v["rho"].update(texture=[True] * 5)), ("rho.texture.0", True)),
        (broken(lambda v: v.update(rho=[1.0])), ("rho", "[1.0]")),
        (broken(lambda v: v.update(groups="texture")), ("groups", "texture")),
        (broken(lambda v: v.update(groups=["texture", 3])), ("groups", 3)),
        (broken(lambda v: v.update(groups=[["texture"], "semantic"])), ("groups", "texture")),
        (broken(lambda v: v.update(lead="depth")), "depth"),
        (broken(lambda v: v.update(lead=["semantic"])), ("lead", "semantic")),
        (broken(lambda v: v.update(degree=1e9)), "degree"),
        (broken(lambda v: v["rho"].update(texture=[10**400] * 5)), "rho"),
        (lwd.Offset(0.3).to_dict() | {"delta": "0.3"}, ("delta", 0.3)),
        (lwd.Offset(0.3).to_dict() | {"delta": 10**400}, "delta"),
        (lwd.Cascade().to_dict() | {"order": ["semantic", 1]}, ("order", 1)),
        (
            lwd.PiecewiseLinear((0, 0.5, 1), [(0, 0.2, 1)] * 2).to_dict()
            | {"times": {"texture": [0, 0.9, 1], "semantic": [0, 1.2, 1]}},
            ("semantic", 1.2),
        ),
    ],
)
def test_bad_files_are_refused_with_a_sentence(tmp_path, value, facts):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(value))
    with pytest.raises(lwd.InputError, match=says(facts)) as caught:
        lwd.load_schedule(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_json_are_refused(tmp_path):
    whole = json.dumps(POLYNOMIAL.to_dict()).encode()
    for content in (whole[: len(whole) // 2], b"", b"\xff\xfe\x00", b"[" * 100_000, b"PK\x03\x04"):
        path = tmp_path / "schedule.json"
        path.write_bytes(content)
        with pytest.raises(lwd.InputError, match=says("schedule.json", "JSON")):
            lwd.load_schedule(path)
    with pytest.raises(lwd.InputError, match=says("absent.json")):
        lwd.load_schedule(tmp_path / "absent.json")
    with pytest.raises(lwd.InputError, match=says(tmp_path)):
        lwd.load_schedule(tmp_path)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    """Oracle: the bytes on disk before and after a write that dies halfway."""
    path = tmp_path / "schedule.json"
    lwd.save_schedule(lwd.Offset(0.3), path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(lwd.InputError, match=says("schedule.json", "No space left on device")):
        lwd.save_schedule(POLYNOMIAL, path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_curve_that_became_nan_is_not_written(tmp_path):
    schedule = lwd.Polynomial()
    with torch.no_grad():
        schedule.rho.fill_(torch.nan)
    with pytest.raises(lwd.InputError, match=says("s.json", "NaN")):
        lwd.save_schedule(schedule, tmp_path / "s.json")
    assert list(tmp_path.iterdir()) == []


def test_words_of_the_command_line(tmp_path):
    names = ("texture", "semantic", "depth")
    assert lwd.parse_schedule("offset:0.3") == lwd.Offset(0.3)
    assert lwd.parse_schedule("offset:0.3", names, "depth") == lwd.Offset(0.3, names, "depth")
    assert lwd.parse_schedule("synchronous", names) == lwd.Synchronous(names)
    assert lwd.parse_schedule("cascade") == lwd.Cascade()
    assert lwd.parse_schedule("cascade:0.9", names, "depth") == lwd.Cascade(
        names, ("depth", "semantic", "texture"), handover=0.9
    )
    assert lwd.parse_schedule("polynomial:2", names) == lwd.Polynomial(groups=names, degree=2)
    path = tmp_path / "mine.json"
    lwd.save_schedule(POLYNOMIAL, path)
    assert lwd.parse_schedule(str(path)) == POLYNOMIAL
    for text, facts in [
        ("offset", "offset:0.3"), ("offset:x", "offset:x"), ("synchronous:1", "synchronous:1"),
        ("cascade:x", "cascade:x"), ("cascade:0", ("handover", "0.0")),
        ("polynomial:x", ("polynomial:x", "degree")),
        ("nothing.json", ("nothing.json", "offset:0.3", "synchronous", "cascade", "polynomial")),
    ]:  # fmt: skip
        with pytest.raises(lwd.InputError, match=says(facts)):
            lwd.parse_schedule(text)
    with pytest.raises(lwd.InputError, match=says("mine.json", "texture", "semantic", "depth")):
        lwd.parse_schedule(str(path), groups=names)
    with pytest.raises(lwd.InputError, match=says("mine.json", "semantic", "texture")):
        lwd.parse_schedule(str(path), lead="texture")
    lwd.save_schedule(lwd.Synchronous(), path)
    with pytest.raises(lwd.InputError, match=says("mine.json", "texture")):
        lwd.parse_schedule(str(path), lead="texture")
    with pytest.raises(lwd.InputError, match=says("x" * 300)):
        lwd.parse_schedule("x" * 300)
