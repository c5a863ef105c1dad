"""Data hyper-cleaning by warm implicit hypergradients, compared with reverse mode.

python -m experiments.warm_cleaning --preset=quick
python -m experiments.warm_cleaning --output_dir=results/warm_cleaning
"""

from experiments.common.study import main
from experiments.warm_cleaning.report import STUDY

if __name__ == "__main__":
    main(STUDY)
