"""Hypers tuned on one random seed and on the average over eight, judged on fresh seeds.

python -m experiments.averaged_seeds
python -m experiments.averaged_seeds --preset=quick --output_dir=results/averaged_seeds_quick
"""

from experiments.averaged_seeds.report import STUDY
from experiments.common.study import main

if __name__ == "__main__":
    main(STUDY)
