"""The scripts of the studies: tables, decisions of protocols, and which model is sampled under which schedule."""

from pathlib import Path

import pytest

import lwd
from evidence import EVIDENCE, script

fid, scripts, pair_tables = script("fid"), script("study"), script("pair_tables")
paired = script("tables").paired


def row(pair, seed, promise, **distances):
    """A result of pairs.py: `promise` for semantic first, and Fréchet distances by schedule."""
    named = {name.replace("_", " ").replace(" 03", " 0.3"): value for name, value in distances.items()}
    gains = {"r5": {"share": promise}, "texture": {"share": 0.0}}
    found = {"pair": pair, "seed": seed, "schedules": {name: {"frechet": {"value": v}} for name, v in named.items()}}
    return found | ({"potential": gains} if promise is not None else {})


PAIRS = [
    *(row("good", seed, 0.03, synchronous=10.0 * k, offset_03=8.0 * k) for seed, k in enumerate((1.0, 1.1, 0.9))),
    *(row("fair", seed, 0.02, synchronous=10.0 * k, offset_03=9.0 * k) for seed, k in enumerate((1.0, 1.1, 0.9))),
    *(row("poor", seed, 0.01, synchronous=10.0 * k, offset_03=12.0 * k) for seed, k in enumerate((1.0, 1.1, 0.9))),
]


def test_the_table_of_pairs_has_paired_ratios_and_the_decision():
    """Oracle: ratios that are the same for every seed have an interval of width 0; more promise, smaller ratio."""
    text = pair_tables.pair_table(PAIRS)
    for pair, ratio in (("good", "0.800 [0.800, 0.800]"), ("poor", "1.200 [1.200, 1.200]")):
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {pair} "))
        assert ratio in line
    assert pair_tables.ranks_agree(PAIRS) == pytest.approx(-1)
    assert pair_tables.ranks(PAIRS).endswith("-1.00.")


def test_the_table_of_learned_curves_compares_with_the_offset_of_the_same_seed():
    """Oracle: 6 / 8 of offset 0.3 and 6 / 10 of one clock for every seed; clocks as a range over seeds."""
    learned = [row("good", seed, None, weakest=6.0 * k) for seed, k in enumerate((1.0, 1.1, 0.9))]
    learned = [one | {"clocks": {"weakest": {"0.5": [0.1 * one["seed"], 0.5]}}} for one in learned]
    learned.append({"pair": "good", "seed": 3, "schedules": {}, "clocks": {}})  # every lambda collapsed
    cells = pair_tables.learned_table(PAIRS, learned).splitlines()[-1].split(" | ")
    assert cells[1:4] == ["4", "0.00 to 0.20, 0.50", "0.750 [0.750, 0.750]"]
    assert cells[4:] == ["-", "-", "0.600 [0.600, 0.600] |"]


def test_the_third_clock_is_chosen_on_one_seed_and_compared_on_the_others():
    """Oracle: seed 0 prefers offset 0.3 with two clocks, though one clock is better on the others: 6 / 12 there."""
    two = [row("two", 0, 0.0, synchronous=10.0, offset_03=9.0)]
    two += [row("two", seed, 0.0, synchronous=5.0, offset_03=12.0) for seed in (1, 2)]
    three = [row("three", seed, None, synchronous=6.0, other=7.0) for seed in (0, 1, 2)]
    decision = pair_tables.clock_table([*two, *three], "three", "two").split("\n\n")[-1]
    assert "synchronous with three" in decision
    assert "offset 0.3 with two" in decision
    assert "0.500 [0.500, 0.500]" in decision


def test_paired_ratios_say_how_many_seeds_they_have():
    assert paired({0: 1.0}, {0: 2.0}) == "0.500 (one seed)"
    assert paired({0: 1.0}, {1: 2.0}) == paired({0: 1.0}, {0: 1.0}) == "-"


def test_a_tempo_is_one_of_training_only(tmp_path, monkeypatch):
    """Oracle: the schedule that is trained moves as tau^2; the one that is sampled under is the offset of the arm."""
    monkeypatch.setattr(scripts, "open_generator", lambda *arguments, **options: (arguments, options))
    study = scripts.Study(EVIDENCE / "fashion-tempo.yaml", tmp_path, tmp_path, "fashion")
    arm, groups = "offset 0.3, tempo of tau^2", ("texture", "semantic")
    trained = lwd.load_schedule(study.schedule(arm, groups))
    arguments, options = study.generator(tmp_path / "model", None, arm)
    assert float(trained.times(0.5)[0]) == pytest.approx(((0.5 - 0.3 / 1.3) / (1 / 1.3)) ** 2, abs=1e-3)
    assert lwd.load_schedule(arguments[-1]) == lwd.Offset(0.3, groups)
    assert options == {"other_schedule": True}
    _, options = study.generator(tmp_path / "model", None, "tau^3, none, uniform")
    assert options == {}


def test_fid_scores_what_the_study_trained():
    """Oracle: the arms and steps of the protocol of the study; pairs that the goal needs come first."""
    about = scripts.Study(EVIDENCE / f"{fid.PROTOCOL['study']}.yaml", Path(), Path(), "").protocol
    assert {arm for _, arm in fid.runs()} <= set(about["arms"])
    assert fid.PROTOCOL["at"] in {sampler["at"] for sampler in about["samples"].values()}
    assert {arm for _, arm in fid.runs()[:6]} == set(fid.PROTOCOL["arms"])


def test_tables_of_curves_pair_by_seed():
    """Oracle: ratios of made-up distances, by hand; a seed that one side lacks does not count."""

    def row(case, seed, **distances):
        scores = {name.replace("_", " "): {"frechet": {"value": value}} for name, value in distances.items()}
        return {"case": case, "seed": seed, "schedules": scores}

    tables = script("curve_tables")
    plain = [
        row("labels", seed, **{"one clock": 20, "offset 0.3": 10 + seed, "handover 0.9": 8 + 0.8 * seed, "cascade": 9})
        for seed in (0, 1)
    ]
    cells = tables.handover_table(plain, lambda _: {1: 17.6}).splitlines()[-1].split(" | ")
    assert cells[0] == "| labels"
    assert cells[7] == "0.800 [0.800, 0.800]"
    assert cells[9] == "0.500 (one seed) |"
    focused = [row("labels focus", 1, **{"offset 0.3": 22, "handover 0.9": 4.4})]
    lines = tables.focus_table(focused, plain).splitlines()[-2:]
    assert [line.split(" | ")[-1] for line in lines] == ["2.000 (one seed) |", "0.500 (one seed) |"]


def test_the_table_of_the_search_uses_the_path_of_seed_0_in_all_networks():
    """Oracle: made-up distances; in its own network that path is the best one."""

    def row(seed, **distances):
        scores = {name.replace("_", " "): {"frechet": {"value": value}} for name, value in distances.items()}
        return {"case": "labels", "seed": seed, "fresh": scores}

    rows = [row(0, best=4, **{"offset 0.3": 8, "synchronous": 16})]
    rows += [row(1, best=3, best_of_seed_0=5, **{"offset 0.3": 10, "synchronous": 12})]
    cells = script("curve_tables").search_table(rows).splitlines()[-1].split(" | ")
    assert cells[7].startswith("0.500 [0.500")
    assert cells[5].startswith("0.387 ")  # the geometric mean of 1/2 and 3/10


def test_the_table_of_ceilings_pairs_networks_of_one_seed():
    """Oracle: made-up distances; networks that only draw texture are compared with those trained for the offset."""

    def rows(case, arm, metric="judge", **by_seed):
        return [{"case": case, "seed": int(s[1]), "arm": arm, "scores": {metric: v}} for s, v in by_seed.items()]

    tables = script("ceiling_tables")
    found = rows("labels", "offset 0.3", s0=10, s1=20) + rows("labels", "clean", s0=5, s1=10)
    found += rows("labels", "nothing", s0=20, s1=40) + rows("trained", "texture only, power 2", s0=3, s2=9)
    found += rows("labels", "offset 0.3, fid", "fid", s0=50) + rows("labels", "clean, fid", "fid", s0=40)
    found += rows("trained", "texture only, power 2, fid", "fid", s0=70)
    judge, fid = tables.ceiling_table(found, {"the judge": ("judge", ""), "FID": ("fid", ", fid")}).splitlines()[-2:]
    assert judge.split(" | ")[4:6] == ["-", "0.500 [0.500, 0.500]"]
    assert judge.split(" | ")[-1] == "2.000 [2.000, 2.000] |"
    assert fid.split(" | ")[3:6] == ["50.00", "-", "0.800 (one seed)"]
    trained = tables.texture_table(found, {"judge": ("the judge", {0: 4.0, 1: 6.0, 2: 12.0})}).splitlines()[-1]
    assert trained == "| the judge | 2 | 7.33 | 6.00 | 0.750 [0.750, 0.750] |"
    clean = tables.schedule_table(found, "labels", "judge", ["clean"]).splitlines()[-1]
    assert clean == "| clean | 2 | 7.50 | - | 0.500 [0.500, 0.500] |"


def test_a_second_start_of_the_search_counts_if_it_is_better_on_the_samples_of_the_search():
    """Oracle: the protocol. The fresh samples do not choose."""
    better = script("curve_tables").better_start
    row = {"leads": [0.1], "searched": {"best": 5.0}, "fresh": {"best": "first", "offset 0.3": "same"}}
    assert better(row) == row
    for value, fresh in ((4.0, "second"), (6.0, "first")):
        again = {"leads": [0.2], "searched": {"best": value}, "fresh": {"best": "second"}}
        assert better({**row, "again": again})["fresh"] == {"best": fresh, "offset 0.3": "same"}
