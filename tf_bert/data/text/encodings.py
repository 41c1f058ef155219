"""Guesses the encoding of a text file, for messages and for ``--encoding``."""

import codecs

import charset_normalizer

# What is looked for, by the names that iconv knows too. Encodings of which every byte string is valid text (LATIN1)
# are left out: they are never wrong, and say nothing.
_CANDIDATES = {
    "utf_16": "UTF-16",
    "utf_16_le": "UTF-16LE",
    "utf_16_be": "UTF-16BE",
    "utf_32": "UTF-32",
    "gb18030": "GB18030",
    "big5": "BIG5",
    "cp932": "SHIFT_JIS",
    "euc_jp": "EUC-JP",
    "cp949": "EUC-KR",
    "cp1251": "CP1251",
    "koi8_r": "KOI8-R",
    "cp1252": "CP1252",
}
_PYTHON_NAMES = {"SHIFT_JIS": "cp932", "EUC-KR": "cp949"}  # supersets of the standards, as files really have them


def likely_encoding(sample: bytes) -> str | None:
    """Names the encoding that some bytes of text are likely to have, or None where none is likely.

    Example:
        >>> likely_encoding("今天天气很好，我们去公园散步。".encode("gb18030"))
        'GB18030'
        >>> likely_encoding(bytes(range(256)) * 4) is None
        True
    """
    found = charset_normalizer.from_bytes(sample, cp_isolation=list(_CANDIDATES), threshold=0.5).best()
    return None if found is None else _CANDIDATES.get(found.encoding)


def python_name(encoding: str) -> str:
    """The codec of an encoding.

    Raises:
        ValueError: Python knows no such encoding of text.

    Example:
        >>> python_name("GB2312"), python_name("utf8")
        ('gb18030', 'utf-8')
    """
    try:
        codec = codecs.lookup(_PYTHON_NAMES.get(encoding.upper(), encoding))
        "".encode(codec.name)  # not "base64" and the like, which are no encodings of text
    except LookupError:
        raise ValueError(
            f"unknown encoding {encoding!r}; known are such as utf-8, {', '.join(_CANDIDATES.values()).lower()}"
        ) from None
    return {"gb2312": "gb18030", "gbk": "gb18030"}.get(codec.name, codec.name)
