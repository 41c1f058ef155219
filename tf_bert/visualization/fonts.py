"""Fonts for characters that matplotlib's own font lacks, such as Chinese ones."""

import functools
import logging
import unicodedata
import warnings
from collections.abc import Iterable

# Tried first where installed: fonts with Chinese, Japanese and Korean characters, on Linux, macOS and Windows.
PREFERRED = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
    "Droid Sans Fallback",
    "Unifont",
)
OWN = "DejaVu Sans"  # comes with matplotlib


@functools.lru_cache
def _characters_of(path: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # a damaged or an unusual font
        return frozenset()


def _is_not_about_weights(record: logging.LogRecord) -> bool:
    """Fonts of these scripts often have one weight, of which matplotlib tells at every picture."""
    return "Failed to find font weight" not in record.getMessage()


def _installed() -> dict[str, str]:
    """The installed fonts, name -> file: the preferred ones first."""
    from matplotlib.font_manager import fontManager

    files = {entry.name: entry.fname for entry in reversed(fontManager.ttflist)}
    order = [*filter(files.get, PREFERRED), *sorted(files.keys() - set(PREFERRED))]
    return {name: files[name] for name in order}


def families_for(texts: Iterable[str]) -> list[str]:
    """Finds fonts that together have all characters of some texts; matplotlib takes each character from the first.

    Warns where no installed font has a character: it is drawn as a box.
    """
    logging.getLogger("matplotlib.font_manager").addFilter(_is_not_about_weights)
    fonts = _installed()
    needed = {ord(c) for text in texts for c in text if not unicodedata.category(c).startswith(("C", "Z"))}
    missing, families = needed - _characters_of(fonts[OWN]), [OWN]
    for name, path in fonts.items():
        if not missing:
            break
        if found := missing & _characters_of(path):
            families.append(name)
            missing -= found
    if missing:
        shown = "".join(map(chr, sorted(missing)[:5]))
        warnings.warn(
            f"no installed font has {len(missing)} of the characters ({shown}...): they are drawn as boxes; install "
            "one, such as the package fonts-noto-cjk for Chinese, Japanese and Korean",
            stacklevel=2,
        )
    return families
