"""Fonts for the characters of a picture."""

import warnings

import pytest

pytest.importorskip("matplotlib")

from tf_bert.visualization import fonts
from tf_bert.visualization.plots import plot_matrix

CHINESE = ["今", "天", "天", "气"]


def plot(path):
    plot_matrix(path, [[0.25] * 4] * 4, CHINESE, CHINESE)
    return path.read_bytes()


def test_text_of_the_own_font_needs_no_other():
    assert fonts.families_for(["Ångström → α", "\n", "$x$"]) == [fonts.OWN]


def test_one_line_where_no_font_has_the_characters(tmp_path, monkeypatch):
    own = fonts._installed()[fonts.OWN]
    monkeypatch.setattr(fonts, "_installed", lambda: {fonts.OWN: own})
    with pytest.warns(UserWarning) as caught:
        plot(tmp_path / "boxes.png")
    assert [str(warning.message) for warning in caught] == [
        "no installed font has 3 of the characters (今天气...): they are drawn as boxes; install one, such as the "
        "package fonts-noto-cjk for Chinese, Japanese and Korean"
    ]


def test_a_font_that_has_the_characters_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(fonts, "_installed", lambda: {fonts.OWN: "own", "Other": "other", "Zen": "zen"})
    has = {"own": "abc", "other": "x", "zen": "今天气"}
    monkeypatch.setattr(fonts, "_characters_of", lambda path: frozenset(map(ord, has[path])))
    assert fonts.families_for(["a今天气"]) == [fonts.OWN, "Zen"]


def test_a_picture_of_chinese_with_an_installed_font(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(fonts.families_for(CHINESE)) == 1:
            pytest.skip("no installed font has Chinese characters")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plot(tmp_path / "a.png") != b""
