"""The grammar of charts: places, legends, axes and the text twin, read from the drawing."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from apples.ui import Box, Boxes, Chart, Key, Lane, Path, Point, Scale, Tag, count


def chart(*lanes, **more):
    return Chart("one", "A title", "A description.", Scale(10.0), lanes, **more)


def element(drawn, kind):
    """Return the attributes of the one element of a class."""
    (found,) = (part for part in ET.fromstring(drawn).iter() if part.get("class") == kind)  # noqa: S314 - ours
    return found.attrib


def pixels(part, *names):
    return sum(float(part.get(name, "0")) for name in names)


lanes = st.lists(
    st.builds(
        lambda words, height, low: Lane(
            [(["word"], "label")] * words, height, [Box(0, 5, "run", low, 1.0)] if height else ()
        ),
        st.integers(0, 3),
        st.floats(1, 90) | st.just(0.0),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=8,
)


@given(lanes, st.integers(0, 4), st.booleans())
def test_lanes_follow_each_other_inside_the_drawing(lanes, keys, axis):
    drawn = ET.fromstring(chart(*lanes, axis=axis, legend=[Key("run", "a key")] * keys).svg())  # noqa: S314 - ours
    parts = [part for part in drawn if "%" in part.get("x", "")]
    bands = [
        (pixels(part, "y"), pixels(part, "y", "height")) for part in parts if part.tag == "rect"
    ]
    words = [pixels(part, "y") for part in parts if part.get("class") == "label"]
    height = float(drawn.get("height")) + 0.5  # rounded
    assert all(0 <= place <= height for place in (*words, *(end for _, end in bands)))
    assert all(end <= top + 0.2 for (_, end), (top, _) in pairwise(bands))
    assert all(b - a >= 15.9 for a, b in pairwise(words))


def test_text_twin_has_the_words_of_every_lane_with_the_values_of_its_numbers():
    lane = Lane([(["ada ", count(1200)], "label")], 16.0, [Tag(1.0, ["so far ", count(7)])])
    drawn = chart(lane, Lane([(["<bob>"], "strong")]), legend=[Key("run", "rows")]).svg()
    twin = re.search(r"<desc[^>]*>(.*?)</desc>", drawn)[1]
    assert twin == (
        'A description. rows; ada <data value="1200">1200</data>, '
        'so far <data value="7">7</data>; &lt;bob&gt;.'
    )


def test_values_beyond_the_axis_end_in_an_arrow():
    for mark, kind in ((Box(0, 11, "plan"), "end-plan"), (Point(11, "mark-run"), "mark-run")):
        assert "d" in element(chart(Lane((), 20.0, [mark])).svg(), kind)
    assert "end-plan" not in chart(Lane((), 20.0, [Box(0, 9, "plan")])).svg()


def test_boxes_and_points_of_a_path_stay_visible():
    up = Scale(1000.0)
    tiny = Boxes([(1.0, 1.0, 500.0, 500.0)], "tiny", crisp=True)
    alone = Path([[(5.0, 0.0)]], "alone")
    drawn = chart(Lane((), 100.0, [tiny, alone], up)).svg()
    assert element(drawn, "tiny level")["d"] == "M100 50H101V51H100z"
    assert element(drawn, "alone level")["d"] == "M500 100h2"


def test_a_legend_fits_into_the_narrowest_page():
    words = ["static", "guest or resized", "mate", "a policy", "another policy"]
    drawn = ET.fromstring(chart(Lane((), 9.0), legend=[Key("run", word) for word in words]).svg())  # noqa: S314 - ours
    texts = [part for part in drawn if part.get("class") == "label"]
    assert [part.text for part in texts] == words
    assert len({part.get("y") for part in texts}) > 1
    assert all(float(part.get("x")) + 7 * len(part.text) <= 240 for part in texts)
