"""A small but complete story for the report page: curves in closed form, pictures from a seeded generator."""

import base64
import copy
import io
import math
from typing import Any

import numpy as np
from PIL import Image

HOSTILE = (
    "</script><script>window.hacked = 1</script><!-- <img src=x onerror='hacked=1'> {{ script }} & \u2028 \ud800 \""
)
SECTIONS = ("path", "surfaces", "trajectory", "grids", "losses")

TAU = [i / 40 for i in range(41)]
MARKS = [i / 16 for i in range(17)]
AXIS = [i / 10 for i in range(11)]
LAMBDAS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
THRESHOLD = 0.0035


def made_story(seed: int = 0) -> dict[str, Any]:
    """Every section of the page, filled with made-up numbers that look like a demo's."""
    random = np.random.default_rng(seed)
    return {
        "format": "lwd.report",
        "version": 1,
        "title": "Learning when to denoise, on handwritten digits",
        "lead": "Two representations of an image are denoised at once, each on its own clock; "
        "the schedule between the clocks was learned here, on this machine, in eleven minutes.",
        "findings": [
            "The learned schedule lets the semantic group run ahead: at τ = 0.5 texture is at 0.28.",
            "Below λ = 0.0035 the schedule collapses: one group waits until the other is done.",
            "The Fréchet distance falls from 14.1 ± 0.3 (synchronous) to 11.2 ± 0.3 (learned).",
            "The best monotone curve of all is lower by 0.002 only: the polynomial family is no limit here.",
            "The fixed offset is as good as the learned curve in recall, within the errors.",
        ],
        "about": {"lwd": "0.1", "torch": "2.13.0", "seed": str(seed), "scale": "made", "time": "11 min on 2 cores"},
        "encoders": [
            {
                "name": "texture",
                "text": "A small autoencoder, 4 channels on 4 x 4, trained on these digits for 600 steps.",
            },
            {"name": "semantic", "text": "Three principal directions of a classifier's features on the same grid."},
        ],
        "commands": [
            {"command": "lwd schedule path runs/demo/surface --steps 20", "text": "The path again, for 20 steps."},
            {"command": "lwd sample --model runs/demo/learned --seeds 0-63 --out samples", "text": "More samples."},
            {"command": "lwd demo --scale small --out runs/again", "text": "The same in a minute, smaller."},
        ],
        "groups": ["texture", "semantic"],
        "lead_group": "semantic",
        "curves": {"tau": TAU, "schedules": schedules(TAU), "caption": CAPTIONS["curves"]},
        "path": lambda_path(),
        "surfaces": surfaces(),
        "losses": losses(random),
        "table": table(),
        "grids": grids(random),
        "trajectory": trajectory(random),
    }


CAPTIONS = {
    "curves": "Left and middle: each group's local time over the global time τ. Right: what the network sees, one time "
    "against the other. A curve below the diagonal lets the semantic group lead.",
    "path": "The best curve for each λ on the tabulated surfaces. A weak λ lets texture wait longer; "
    "a strong one pulls the curve to the diagonal.",
    "surfaces": "Losses (above) and energies (below) over the two clocks, from one denoiser that was trained at "
    "independent times. Touch a map to read a value.",
    "losses": "Flow loss on held-out digits while training, the same number of steps for each schedule.",
    "table": "Value ± standard error over 4 sets of 2,500 samples.",
    "grids": "The same 32 seeds and labels for each schedule, 20 steps.",
    "trajectory": "One sample from noise to data. The semantic latent is shown by its three leading directions.",
}


def schedules(tau: list[float]) -> list[dict[str, Any]]:
    late = {"texture": [max(0.0, (1.3 * t - 0.3)) for t in tau], "semantic": [min(1.0, 1.3 * t) for t in tau]}
    return [
        {"name": "synchronous", "times": {"texture": tau, "semantic": tau}, "learned": False},
        {"name": "offset 0.3", "times": late, "learned": False},
        {"name": "learned", "times": curve(tau, 1.8), "learned": True},
    ]


def curve(tau: list[float], power: float) -> dict[str, list[float]]:
    """The lead in the gauge of tau, the other group as a power of it."""
    return {"texture": [t**power for t in tau], "semantic": list(tau)}


def lambda_path() -> dict[str, Any]:
    points = []
    for value in LAMBDAS:
        power = 1 + 0.8 * (0.02 / value) ** 0.5
        flow, energy = 0.62 + 0.06 * math.exp(1 - power), 1 + power**2 / (2 * power - 1)
        objective = flow + value * energy
        points.append(
            {
                "lambda": value,
                "times": curve(TAU, power),
                "objective": objective,
                "flow": flow,
                "energy": energy,
                "floor": objective - 0.002,
                "error": 0.01 * energy,
                "collapsed": value < THRESHOLD,
            }
        )
    marks = {"threshold": THRESHOLD, "weakest": 0.005, "chosen": 0.02}
    return {"tau": TAU, "points": points, **marks, "caption": CAPTIONS["path"]}


def surfaces() -> dict[str, Any]:
    """Rows by texture time, columns by semantic time."""
    texture, semantic = np.meshgrid(AXIS, AXIS, indexing="ij")
    panels = {
        "loss of texture": 0.9 * np.exp(-1.2 * texture) * (1 - 0.35 * semantic) + 0.1,
        "loss of semantic": 0.7 * np.exp(-1.6 * semantic) * (1 - 0.15 * texture) + 0.05,
        "mean |v|² of texture": 1 + 0.6 * texture + 0.25 * semantic * texture,
        "mean |v|² of semantic": 1.1 + 0.4 * semantic**2 + 0.1 * texture,
    }
    shown = [{"title": title, "values": values.tolist()} for title, values in panels.items()]
    return {"axis": AXIS, "x": "semantic", "y": "texture", "panels": shown, "caption": CAPTIONS["surfaces"]}


def losses(random: np.random.Generator) -> dict[str, Any]:
    step = list(range(50, 2050, 50))
    runs = []
    for name, end in (("learned", 0.60), ("synchronous", 0.66), ("offset 0.3", 0.62)):
        noise = random.normal(0, 0.006, len(step))
        runs.append(
            {
                "name": name,
                "step": step,
                "value": [end + 2 / (1 + s / 60) + n for s, n in zip(step, noise, strict=True)],
            }
        )
    return {"runs": runs, "y": "flow loss", "caption": CAPTIONS["losses"]}


def table() -> dict[str, Any]:
    columns = [
        {"key": "fd", "title": "Fréchet distance", "better": "lower", "help": "In the features of a digit classifier."},
        {"key": "recall", "title": "recall", "better": "higher", "help": "Share of real digits near a sample."},
        {"key": "guided", "title": "guided distance", "better": "lower", "help": "With guidance 1.5."},
        {"key": "nfe", "title": "evaluations", "better": None, "help": ""},
    ]
    numbers = {
        "synchronous": ((14.1, 0.31), (0.612, 0.008), (9.9, 0.4)),
        "offset 0.3": ((12.4, 0.27), (0.634, 0.007), (None, None)),
        "learned": ((11.2, 0.29), (0.639, 0.009), (8.1, 0.3)),
    }
    rows = []
    for name, cells in numbers.items():
        filled = {key: {"value": v, "error": e} for key, (v, e) in zip(("fd", "recall", "guided"), cells, strict=True)}
        rows.append({"name": name, "cells": {**filled, "nfe": "40"}})
    return {"columns": columns, "rows": rows, "caption": CAPTIONS["table"]}


def grids(random: np.random.Generator) -> dict[str, Any]:
    names = ["learned", "synchronous", "offset 0.3"]
    items = []
    for i, name in enumerate(names):
        for variant, contrast in (("plain", 0.7), ("guided", 1.0)):
            cells = [[contrast * ring(8 * row + column, 28, 0.2 * i) for column in range(8)] for row in range(4)]
            noisy = np.block(cells) + random.normal(0, 0.04, (4 * 28, 8 * 28))
            alt = f"32 digits sampled under {name}, {variant}"
            items.append({"name": name, "variant": variant, "image": uri(noisy), "alt": alt})
    return {"names": names, "items": items, "caption": CAPTIONS["grids"]}


def trajectory(random: np.random.Generator) -> dict[str, Any]:
    runs = []
    for schedule in schedules(MARKS):
        for label, kind in (("digit 0", 0), ("digit 6", 6)):
            times = schedule["times"]
            texture, semantic = random.random((28, 28)), random.random((4, 4, 3))
            target = ring(kind, 28, 0.1)
            colours = np.stack([ring(kind + c, 4, 0.3 * c) for c in range(3)], axis=-1)
            runs.append(
                {
                    "name": schedule["name"],
                    "label": label,
                    "texture": [uri(t * target + (1 - t) * texture) for t in times["texture"]],
                    "semantic": [uri(t * colours + (1 - t) * semantic) for t in times["semantic"]],
                    "times": times,
                }
            )
    return {"tau": MARKS, "runs": runs, "caption": CAPTIONS["trajectory"]}


def ring(kind: int, size: int, turn: float) -> np.ndarray:
    """A bent ring in [0, 1]: something that looks like a digit from far away."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    angle = np.arctan2(y, x)
    radius = 0.52 + 0.16 * np.cos((kind % 4 + 1) * angle + turn + kind)
    return np.exp(-(((np.hypot(x * (1 + 0.1 * (kind % 3)), y) - radius) / 0.16) ** 2))


def uri(values: np.ndarray) -> str:
    """Values in [0, 1] as a PNG in a data: URI."""
    buffer = io.BytesIO()
    Image.fromarray((255 * values.clip(0, 1)).astype(np.uint8)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def changed(story, place, value=None, drop=False):
    """A copy of the story with one value replaced or removed; place: keys and indices."""
    out = copy.deepcopy(story)
    inner = out
    for key in place[:-1]:
        inner = inner[key]
    if drop:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return out


def hostile(value):
    """The same structure with the hostile string appended to every string that is free text."""
    if isinstance(value, dict):
        fixed = ("format", "groups", "lead_group", "x", "y", "variant", "better", "image", "texture", "semantic")
        return {key: inner if key in fixed else hostile(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner) for inner in value]
    return value + HOSTILE if isinstance(value, str) else value
