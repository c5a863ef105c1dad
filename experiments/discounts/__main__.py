"""How far a hypergradient in real time should look back: discounts, with and without carry, on digits and on phones.

python -m experiments.discounts --preset=quick
python -m experiments.discounts
"""

from experiments.common.study import main
from experiments.discounts.report import STUDY

if __name__ == "__main__":
    main(STUDY)
