"""From how many hypers on do hypergradients beat a search that takes as long? Four families of problems, 1 to 1,000 hypers.

python -m experiments.crossover --preset=quick
python -m experiments.crossover --workers=2
"""

from experiments.common.study import main
from experiments.crossover.report import STUDY

if __name__ == "__main__":
    main(STUDY)
