"""Splits a paragraph into sentences, in any language that marks where they end.

The marks are Unicode's (property Sentence_Break of UAX 29, as the `regex` library has it): . ! ? and their likes in
other scripts (。 ！ ？ । ؟ ۔ ። ။ ։), with the quotes and brackets that close after them; in Chinese also ；, ……, and
． or . after a character without case. What UAX 29 leaves open is
decided by what stands around: abbreviations, initials, decimals, ellipses, a question inside a quotation.
Thai, Lao and other scripts that do not mark the ends of sentences are not split.
"""

import regex

# A full stop after these does not end a sentence: something always follows. Compared without case.
ABBREVIATIONS = frozenset(
    """
    mr mrs ms messrs mme mlle dr prof rev hon capt col gen lt sgt cmdr gov sen rep pres st mt ft
    vs cf viz al approx resp incl esp ca bzw vgl sog hr fr str evtl ggf inkl sr sra srta dra ud uds
    doç yrd örn bkz av hz ул им см др рис стр डॉ श्री प्रो
    """.split()
)
# A full stop after these does not end a sentence where a number follows.
ABBREVIATIONS_BEFORE_NUMBERS = frozenset(
    """
    no nos nr num vol fig figs eq eqs p pp ch chap sec sect art par ver v abb bd s seite núm pág cap
    jan feb mar apr jun jul aug sep sept oct nov dec
    """.split()
)
# Where German writes the ordinals of dates and centuries: 3. Oktober, im 19. Jahrhundert.
AFTER_ORDINALS = frozenset(
    "januar februar märz april mai juni juli august september oktober november dezember jahrhundert".split()
)

_CJK = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"
_CLOSERS = r"""(?: [\p{Pe}\p{Pf}\p{Pi}"'*_] | \[\d+\] | [ ]»(?=[ ]|$) )*+"""
# Where a sentence may end. Marks of other scripts need no blank behind them, and there an opening quote (as in 。“)
# belongs to the next sentence; ! and ? need none between letters of scripts without case, as in 你好!今天. Nor do . ．
# and …… between Chinese, Japanese and Korean letters; …… needs three of them before it (not 我……我不知道).
_BOUNDARY = regex.compile(
    rf"""
    (?P<mark> [[[\p{{SB=STerm}}]--[!?]]；] [\p{{SB=STerm}}\p{{SB=ATerm}}…；]*+ ) [\p{{Pe}}\p{{Pf}}"'＂＇]*+ [ ]?
    | (?<= \p{{Lo}} ) (?P<tight> [!?]++ ) [\p{{Pe}}\p{{Pf}}]*+ (?= [\p{{Ps}}\p{{Pi}}]*+ \p{{Lo}} )
    | (?<= {_CJK} [\p{{Pe}}\p{{Pf}}]? ) (?P<east> [.．](?![.．…]) | (?<= {_CJK}{{3}} ) (?: …{{2,}}+ | \.{{6,}}+ ) )
      [\p{{Pe}}\p{{Pf}}]*+ (?= [\p{{Ps}}\p{{Pi}}]*+ {_CJK} )
    | (?P<stop> \. (?: [ ]\. )++ | [.!?…․﹒．]++ ) {_CLOSERS} (?P<blank> [ ]? )
    """,
    regex.VERBOSE | regex.V1,
)
_CONTINUES_AFTER_MARK = regex.compile(r"[\p{SB=SContinue}\p{SB=STerm}\p{SB=ATerm}]", regex.V1)
_CONTINUES = regex.compile(r"""[,;:] | [\p{Ps}\p{Pi}\p{Pd}"'¿¡*_\ ]*+ \p{Lower}""", regex.VERBOSE | regex.V1)
_PUNCTUATION_ONLY = regex.compile(r"[,;:]")
_LAST_WORD = regex.compile(r"""[^\s\p{Ps}\p{Pi}"'*_]+$""", regex.V1)
_LETTER_AND_STOP = regex.compile(r"\p{L}\.")
_FIRST_WORD = regex.compile(r"\p{L}*")
_LETTERS_WITH_STOPS = regex.compile(r"(?:\p{L}\p{M}*\.\ ?)*+\p{L}\p{M}*|(?:\p{L}\.)+\p{L}{1,2}", regex.V1)
_LONGEST_WORD_LOOKED_AT = 40


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph into sentences.

    Args:
        text: one paragraph; every stretch of blanks in it (line ends too) counts as one space.

    Returns:
        The sentences without blanks around them; joined by spaces they are the paragraph again, but where no space
        stood between them, as in Chinese.

    Example:
        >>> split_sentences('Mr. J. Bell paid 3.50 dollars. "Why so much?" he asked. (It was late.) Nobody knew...')
        ['Mr. J. Bell paid 3.50 dollars.', '"Why so much?" he asked.', '(It was late.)', 'Nobody knew...']
        >>> split_sentences("你好！今天天气很好。我们走吧。")
        ['你好！', '今天天气很好。', '我们走吧。']
    """
    text = " ".join(text.split())
    # Where there are capitals, a small letter shows that the sentence goes on. Text without any tells nothing.
    continues = _CONTINUES if text != text.lower() else _PUNCTUATION_ONLY
    sentences, start = [], 0
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if match["mark"]:
            ends = not _CONTINUES_AFTER_MARK.match(text, end)
        elif match["tight"] or match["east"]:
            ends = True
        else:
            ends = match["blank"] != "" and not continues.match(text, end) and not _is_abbreviation(text, start, match)
        if ends:
            sentences.append(text[start:end].rstrip())
            start = end
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _is_abbreviation(text: str, start: int, match: regex.Match) -> bool:
    """Whether the full stop belongs to the word before it."""
    if match["stop"] != ".":
        return False
    place = match.start("stop")
    before = text[max(start, place - _LONGEST_WORD_LOOKED_AT) : place]
    found = _LAST_WORD.search(before)
    if found is None:
        return False
    word = found[0]
    if word.isdecimal():
        in_a_list = place - len(word) == start  # "1. Open the file."
        return in_a_list or _FIRST_WORD.match(text, match.end())[0].lower() in AFTER_ORDINALS
    if word == "I":  # the pronoun ("so did I.") after a small letter, else a first name or number ("Elizabeth I.")
        return not before[: found.start()].rpartition(" ")[0].rpartition(" ")[2][:1].islower()
    if len(word) == 1 and word.islower():  # "z. B.", not the name of a variable
        return _LETTER_AND_STOP.match(text, match.end()) is not None
    if ("." in word or word.lower() != word.upper()) and _LETTERS_WITH_STOPS.fullmatch(word):
        return True  # initials, U.S., e.g., z.B.
    word = word.lower()
    if word in ABBREVIATIONS:
        return True
    return word in ABBREVIATIONS_BEFORE_NUMBERS and text[match.end() : match.end() + 1].isdecimal()
