"""The contents of the report: curves, surfaces, tables, pictures and captions."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from lwd.demo.plan import NAMES, ONE, SETS, UNTRAINED, Plan, names_of, samples_folder, train_folder
from lwd.demo.results import Results, commands, findings
from lwd.images.fashion import CLASSES, fashion_meta, fashion_semantic
from lwd.images.pictures import data_uri, png
from lwd.report.sheets import colours
from lwd.report.trajectory import states_along
from lwd.representations.judge import load_judge
from lwd.sampling.generator import Generator
from lwd.schedule.base import Schedule
from lwd.schedule.io import schedule_from_dict
from lwd.surfaces.table import grid_points, smooth
from lwd.training.journal import METRICS, read_metrics
from lwd.version import __version__

TAU = tuple(i / 60 for i in range(61))
AXIS = 33
SHOWN = (7, 8)
"""Classes in the viewer: a sneaker and a bag."""
LEAD = (
    "Two representations of an image are denoised together, each on its own clock, and the schedule of the clocks is "
    "learned. This page shows the results of one run of lwd demo."
)
QUICK = " This was a quick run, which only shows that everything works: the networks are hardly trained."
COLUMNS = {
    "frechet": ("Fréchet distance", "lower", "to the 2,000 test images, on the 64 features of the judge"),
    "precision": ("precision", "higher", "share of samples that are close to a test image, on the judge's features"),
    "recall": ("recall", "higher", "share of test images that are close to a sample, on the judge's features"),
    "seen": ("correct class", "higher", "share of samples that the judge assigns to the requested class"),
}


def make_story(
    found: Results, generator: Callable[[str, str], Generator], advance: Callable[[float], object]
) -> dict[str, Any]:
    """Collect the contents of the report (see lwd.report.html); most of the time goes into the trajectories."""
    plan = found.plan
    lines = findings(found)
    viewer = _trajectories(plan, generator, advance)
    table = _table(found)
    return {
        "format": "lwd.report",
        "version": 1,
        "title": "Learning when to denoise",
        "lead": LEAD + (QUICK if plan.scale == "quick" else ""),
        "findings": lines,
        "about": _about(plan),
        "encoders": _encoders(),
        "commands": commands(found.out),
        "groups": list(found.table.layout.names),
        "lead_group": "semantic",
        "curves": _curves(found),
        "path": _path(found),
        "surfaces": _surfaces(found),
        "losses": _losses(found),
        "table": table,
        "grids": _grids(found),
        "trajectory": viewer,
    }


def _about(plan: Plan) -> dict[str, str]:
    kept = {"lwd": __version__, "torch": torch.__version__}
    return kept | {key.replace("_", " "): str(value) for key, value in plan.to_dict().items()}


def _encoders() -> list[dict[str, str]]:
    meta = fashion_meta()
    return [
        {
            "name": "texture",
            "text": "16 channels on 4x4, from an autoencoder trained with lwd fit texture (patches of 7 px) on the "
            "same 12,000 Fashion-MNIST images (Zalando, MIT licence). It also decodes samples to pixels.",
        },
        {
            "name": "semantic",
            "text": f"8 channels on 4x4: {meta['encoder']}, trained on ImageNet images and labels; "
            f"{meta['compressor']}.",
        },
        {
            "name": "judge",
            "text": "A small classifier that computes the features for the metrics, trained on the same 12,000 images "
            "and their labels (86% accuracy on the test images). Its distances are comparable only within this page; "
            "they are not FID.",
        },
    ]


def _times(schedule: Schedule, tau: Sequence[float] = TAU) -> dict[str, list[float]]:
    values = schedule.times(torch.tensor(tau, dtype=torch.float64)).detach()
    return {name: [round(v, 5) for v in values[:, g].tolist()] for g, name in enumerate(schedule.groups)}


def _curves(found: Results) -> dict[str, Any]:
    plan, kinetic = found.plan, found.path["chosen"]
    shown = {**found.schedules, f"joint probe, {plan.joint_steps} steps": found.joint}
    rows = [
        {"name": n, "times": _times(s), "learned": n not in ("synchronous", "offset 0.3", *UNTRAINED)}
        for n, s in shown.items()
    ]
    caption = (
        f"Learned: the best curve of the paper's polynomial family for lambda {kinetic:.3g}, on the loss surfaces of "
        f"one probe ({plan.probe_steps} steps, batch {plan.batch}). The joint probe used the same lambda and started "
        f"halfway between one common clock and this curve, at a distance of {found.start_gap:.3f}; the two learned "
        f"curves differ by at most {found.gap:.3f}."
    )
    return {"tau": [round(t, 5) for t in TAU], "schedules": rows, "caption": caption}


def _path(found: Results) -> dict[str, Any]:
    plan, path = found.plan, found.path
    points = []
    for point in path["points"]:
        kept = {key: point[key] for key in ("lambda", "objective", "flow", "energy", "floor", "error", "collapsed")}
        points.append(kept | {"times": _times(schedule_from_dict(point["schedule"]))})
    caption = (
        "Every curve minimises flow loss + lambda x kinetic energy on the same surfaces; dotted: the best monotone "
        f"path with semantic time as tau. Chosen: the weakest stable lambda for which the predicted error of "
        f"{plan.steps} Heun steps is at most {plan.tolerance:g} standard deviations of the latents, or else the one "
        "with the smallest error."
    )
    marks = {key: path[key] for key in ("threshold", "weakest", "chosen")}
    return {"tau": [round(t, 5) for t in TAU], "points": points, "caption": caption, **marks}


def _surfaces(found: Results) -> dict[str, Any]:
    axis = torch.linspace(0, 1, AXIS, dtype=torch.float64)
    losses, energies = smooth(found.table)(grid_points(axis, 2))
    panels = []
    for values, what in ((losses, "loss of {}"), (energies, "mean squared velocity of {}")):
        for g, name in enumerate(found.table.layout.names):
            # Rows are the time of the first group.
            grid = [[round(v, 4) for v in row] for row in values[:, g].reshape(AXIS, AXIS).tolist()]
            panels.append({"title": what.format(name), "values": grid})
    caption = (
        f"Estimated on {found.plan.points} x {found.plan.points} points, with {found.plan.probe_images} held-out "
        "images each. The loss of a group falls as the clock of the other group advances: this is the benefit of "
        "waiting."
    )
    return {
        "axis": [round(a, 5) for a in axis.tolist()],
        "x": "semantic",
        "y": "texture",
        "panels": panels,
        "caption": caption,
    }


def _losses(found: Results) -> dict[str, Any]:
    plan, runs = found.plan, []
    for name in NAMES:
        lines = read_metrics(train_folder(found.out, name) / METRICS)
        points = [(line["step"], round(line["total"], 5)) for line in lines if "total" in line]
        runs.append({"name": name, "step": [p[0] for p in points], "value": [p[1] for p in points]})
    caption = (
        f"Stage II: {plan.train_steps} steps with batch {plan.batch} and seed {plan.seed}, each from the network of "
        "the surface probe. All runs weight local times equally, but with different states of the other group."
    )
    return {"runs": runs, "y": "training loss", "caption": caption}


def _table(found: Results) -> dict[str, Any]:
    judge, rows = load_judge(), []
    for name, variant in SETS:
        metrics, (flow, energy) = found.scores[name, variant], found.terms(name)
        cells: dict[str, Any] = {key: metrics[key] for key in ("frechet", "precision", "recall")}
        share, error = found.seen(name, variant, judge)
        cells |= {"seen": {"value": share, "error": error}}
        cells |= {"flow": {"value": flow, "error": None}, "energy": {"value": energy, "error": None}}
        rows.append({"name": name if variant == "plain" else f"{name}, {variant}", "cells": cells})
    columns: list[dict[str, Any]] = [{"key": k, "title": t, "better": b, "help": h} for k, (t, b, h) in COLUMNS.items()]
    columns += [
        {"key": "flow", "title": "flow loss", "better": None, "help": "of the schedule, on the surfaces"},
        {"key": "energy", "title": "kinetic energy", "better": None, "help": "of the schedule, on the surfaces"},
    ]
    plan = found.plan
    caption = (
        f"{plan.count} samples per row with the same seeds and classes, {plan.steps} Heun steps, against the 2,000 "
        f"embedded test images. Guided: AutoGuidance with scale {plan.guidance:g} and the network of the surface probe "
        "as the weak model. One network: that of the surface probe, under each schedule; cascade 0.9: semantic runs to "
        "0.9 and waits there for texture. Standard errors come from leaving out tenths of the samples; they do not "
        "include the variation over training seeds, because each row is one training run. Sets share noise and "
        "classes, so ratios have much smaller errors: see the first line."
    )
    return {"columns": columns, "rows": rows, "caption": caption}


def _grids(found: Results) -> dict[str, Any]:
    items = []
    for name, variant in SETS:
        path = samples_folder(found.out, name, variant) / "grid.png"
        alt = f"samples under {name}, {variant}: one column per class"
        items.append({"name": name, "variant": variant, "image": data_uri(_full_rows(path)), "alt": alt})
    caption = (
        f"The first samples of each set, {found.plan.steps} Heun steps; equal positions have equal seed and class."
    )
    return {"names": list(names_of(ONE)), "items": items, "caption": caption}


def _full_rows(path: Path) -> bytes:
    """Return a grid of ten columns without its last row if that is incomplete."""
    grid = Image.open(path)
    cell = grid.width // len(CLASSES)
    kept = cell * max(1, min(grid.height // cell, 64 // len(CLASSES)))
    buffer = io.BytesIO()
    grid.crop((0, 0, grid.width, min(kept, grid.height))).save(buffer, "PNG")
    return buffer.getvalue()


def _trajectories(
    plan: Plan, generator: Callable[[str, str], Generator], advance: Callable[[float], object]
) -> dict[str, Any]:
    marks = [i / (plan.marks - 1) for i in range(plan.marks)]
    like, runs = fashion_semantic("test")[:500], []
    for name in NAMES:
        one = generator(name, "plain")
        c = one.pipe.checkpoint
        seeds = [plan.seed + label for label in SHOWN]
        states = states_along(one.pipe, one.velocity(), seeds, SHOWN, marks)
        texture = [one.pipe.decode(z) for z in states.values()]
        semantic = [colours(c.latents(z)["semantic"], like) for z in states.values()]
        for row, label in enumerate(SHOWN):
            pictures = {"texture": texture, "semantic": semantic}
            frames = {group: [data_uri(png(frame[row])) for frame in frames] for group, frames in pictures.items()}
            runs.append({"name": name, "label": CLASSES[label], **frames, "times": _times(c.schedule, marks)})
        advance(1)
    caption = (
        "One sample from noise to data, solved accurately (dopri5): the decoded texture state, and the first three "
        "principal directions of the semantic state as red, green and blue."
    )
    return {"tau": [round(t, 5) for t in marks], "runs": runs, "caption": caption}
