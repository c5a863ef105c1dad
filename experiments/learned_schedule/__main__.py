"""A learning rate for each of 2,000 steps, learned by hypergradients, beside schedules tuned by random trials.

python -m experiments.learned_schedule --preset=quick
python -m experiments.learned_schedule --workers=4   # on a GPU
"""

from experiments.common.study import main
from experiments.learned_schedule.report import STUDY

if __name__ == "__main__":
    main(STUDY)
