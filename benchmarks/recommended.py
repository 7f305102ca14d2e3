"""Choose the solver that ships with a model, then measure it on samples that the choice has not seen.

    python benchmarks/recommended.py [--model fashion] [--guided] [--write]

Each set of seeds has one purpose, and the rules below are fixed before the last set is drawn:

1. Steps of abm are placed on the calibration batch (32 samples of `lwd.sampling.placement`): the least sum of local
   errors, without the search that overfits.
2. The number of steps is chosen on 32 samples from seed CHOICE: the fewest whose error is at most that of torchdiffeq
   as SFD calls it (dopri5, atol 1e-6, rtol 1e-3) on the same samples.
3. The setting and torchdiffeq are measured on two batches of 32 samples from seed FRESH. Errors are pooled (root mean
   square over both batches); `ratio` is our number of evaluations over torchdiffeq's mean.

--write stores the setting in the model that ships with lwd (sampling.json).
"""

import argparse
import json
from dataclasses import replace

import torch
from sampler import as_sfd

from lwd.assets import MODELS
from lwd.checkpoints.recommended import store_recommended
from lwd.sampling.benchmark import Trial, error, recommendation
from lwd.sampling.generator import open_generator
from lwd.sampling.placement import calibrate, cheapest
from lwd.sampling.settings import SampleSettings
from lwd.solver.fixed import ORDERS

METHOD, COUNT, FEWEST, MOST = "abm", 32, 10, 40
CHOICE, FRESH, BATCHES = 20_000, 30_000, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="fashion", choices=("fashion", "cifar"))
    parser.add_argument("--guided", action="store_true", help="with the weak partner as the guide, scale 1.5")
    parser.add_argument("--write", action="store_true", help="store the setting with the shipped model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    scale = 1.5 if arguments.guided else None
    guide = f"{arguments.model}-weak" if arguments.guided else None
    generator = open_generator(arguments.model, SampleSettings(count=COUNT, solver="dopri5", scale=scale), guide)
    flow = replace(generator.flow(), first=CHOICE)
    calibration = calibrate(flow)
    truth, (theirs, calls) = flow.truth(), as_sfd(flow)
    allowed = error(theirs, truth)
    print(f"choice: torchdiffeq {calls}, error {allowed:.2e}", flush=True)
    for steps in range(FEWEST, MOST):
        grid = cheapest(calibration.trajectory(steps), steps, ORDERS[METHOD])
        solution = flow.solve(method=METHOD, grid=grid)
        found = error(solution.z, truth)
        print(f"choice: {METHOD}, {steps} placed steps: {solution.nfe}, error {found:.2e}", flush=True)
        if found <= allowed:
            break
    chosen = Trial(METHOD, "optimised", steps, None, float(solution.nfe), found, grid)
    if arguments.write:
        store_recommended(MODELS[arguments.model], recommendation(generator, allowed, chosen))
    rows = []
    for batch in range(BATCHES):
        fresh = replace(flow, first=FRESH + batch * COUNT)
        truth, (theirs, calls) = fresh.truth(), as_sfd(fresh)
        rows.append((error(fresh.solve(method=METHOD, grid=grid).z, truth), error(theirs, truth), calls))
        print("fresh: {:.2e}; torchdiffeq {:.2e} with {}".format(*rows[-1]), flush=True)
    ours, others, cost = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    pooled = [float(values.square().mean().sqrt()) for values in (ours, others)]
    result = {"evaluations": chosen.nfe, "error": pooled[0], "torchdiffeq": float(cost.mean()), "its error": pooled[1]}
    print(json.dumps(result | {"ratio": chosen.nfe / float(cost.mean())}))


if __name__ == "__main__":
    main()
