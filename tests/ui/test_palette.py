"""The palette, measured again: contrast with the paper, and distance for all eyes."""

from itertools import combinations

import pytest
from ui.colour import EYES, contrast, distance, lab

from apples.ui import DARK, FILLS, LIGHT, css

GROUPS = (("plan", "run"), FILLS, ("good", "watch", "bad"))  # beside each other on a page

themes = pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])


@themes
def test_every_colour_stands_out_from_its_paper(colours):
    for name in {name for group in GROUPS for name in group}:
        assert contrast(colours[name], colours["paper"]) >= 3.0, name


@themes
def test_words_can_be_read(colours):
    for name in ("ink", "quiet", "good", "watch", "bad"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name


@themes
@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("group", GROUPS, ids="-".join)
def test_colours_that_stand_side_by_side_stay_apart_for_all_eyes(colours, eye, group):
    for one, other in combinations(group, 2):
        apart = distance(lab(colours[one], eye), lab(colours[other], eye))
        assert apart >= 15.0, (one, other, apart)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [  # Sharma, Wu, Dalal 2005, table 1: pairs 1, 7, 13, 17, 25
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, -0.0010, 2.4900), (50.0, 0.0011, -2.4900), 4.7461),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ],
)
def test_the_distance_is_that_of_its_authors(one, other, apart):
    assert distance(one, other) == pytest.approx(apart, abs=1e-4)


def test_the_dark_colours_are_for_screens_only():
    light, dark = css().split("@media")
    assert LIGHT["ink"] in light
    assert dark.startswith(" screen and (prefers-color-scheme:dark)")
