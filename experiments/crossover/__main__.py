"""How many hypers does it take for hypergradients to beat a search that takes as long? Four families, 1 to 1,000 hypers.

python -m experiments.crossover --preset=quick
python -m experiments.crossover --workers=2
"""

from experiments.common.study import main
from experiments.crossover.report import STUDY

if __name__ == "__main__":
    main(STUDY)
