"""How figures are saved, and names of files."""

import matplotlib.pyplot as plt

from experiments.common import figures


def test_a_figure_is_saved_twice_under_its_whole_name(tmp_path):
    figure, axis = plt.subplots()
    figures.add_grids([axis])
    axis.plot([0, 1], color=figures.colours(2)[0])
    figures.save_figure(figure, tmp_path / "new" / "R=0.001")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"R=0.001.png", "R=0.001.pdf"}
    assert not plt.fignum_exists(figure.number)


def test_a_slug_has_no_characters_that_file_names_should_not_have():
    assert figures.slug("HMTL-S R=0.001, p=4/3") == "HMTL-S_R=0.001_p=4_3"
