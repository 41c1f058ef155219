"""How well vectors tell the senses of a word apart."""

import numpy as np
import pytest

from tf_bert.visualization.senses import separation


def test_the_nearest_text():
    """Three at their places, one nearer to the other sense."""
    angles = {"river": [0.0, 0.1], "money": [2.0, 0.3]}
    vectors = {
        sense: [{"layer 1": np.array([np.cos(angle), np.sin(angle)])} for angle in some]
        for sense, some in angles.items()
    }
    same, other, right = separation(vectors)["layer 1"]
    assert right == 0.75  # 0 and 0.1 have each other, 2.0 has 0.3; but 0.3 has 0.1
    assert same == pytest.approx(np.mean(np.cos([0.1, 1.7])))
    assert other == pytest.approx(np.mean(np.cos([2.0, 0.3, 1.9, 0.2])))
