"""A weight for each of 5,000 training digits, half of them with a wrong label, learned in one training of a network.

python -m experiments.online_weights --preset=quick
python -m experiments.online_weights
"""

from experiments.common.study import main
from experiments.online_weights.report import STUDY

if __name__ == "__main__":
    main(STUDY)
