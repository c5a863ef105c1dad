"""Ten steps of the optimisers without a rate, by the packages of their authors.

pip install torch dadaptation prodigyopt schedulefree dog-optimizer
python -m tests.experiments.long_training.golden   # writes golden.json beside this file
"""

import json
from pathlib import Path

import numpy as np

STORED = Path(__file__).with_name("golden.json")
STEPS = 10


def problem():
    """(initial weights, matrices, vectors): in step t, the loss is the mean of log cosh(A_t w - b_t)."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=[3]), rng.normal(size=[2])], rng.normal(size=[STEPS, 7, 5]), rng.normal(size=[STEPS, 7])


def trajectories():
    """The weights that each package would evaluate, after each step."""
    import dadaptation
    import dog
    import prodigyopt
    import schedulefree
    import torch

    makes = {
        "DoG": dog.DoG,
        "D-Adaptation": dadaptation.DAdaptAdam,
        "Prodigy": prodigyopt.Prodigy,
        "schedule-free": schedulefree.AdamWScheduleFree,
    }
    initial, matrices, vectors = problem()
    done = {}
    for name, make in makes.items():
        params = [torch.nn.Parameter(torch.tensor(p)) for p in initial]
        optimizer = make(params)
        averager = dog.PolynomialDecayAverager(torch.nn.ParameterList(params)) if name == "DoG" else None
        done[name] = []
        for a, b in zip(torch.tensor(matrices), torch.tensor(vectors), strict=True):
            if name == "schedule-free":
                optimizer.train()
            optimizer.zero_grad()
            torch.log(torch.cosh(a @ torch.cat(params) - b)).mean().backward()
            optimizer.step()
            if name == "schedule-free":
                optimizer.eval()
            shown = params
            if averager is not None:
                averager.step()
                shown = list(averager.averaged_model.parameters())
            done[name].append(torch.cat(list(shown)).tolist())
    return done


if __name__ == "__main__":
    STORED.write_text(json.dumps(trajectories(), indent=1) + "\n")
