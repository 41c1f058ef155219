"""The original's tokenizer, written down character by character: oracle of the tests and yardstick of the benchmark."""

import unicodedata

CHINESE = [
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
]


def whitespace(char):
    if char == " " or char == "\t" or char == "\n" or char == "\r":
        return True
    return unicodedata.category(char) == "Zs"


def control(char):
    if char == "\t" or char == "\n" or char == "\r":
        return False
    return unicodedata.category(char) in ("Cc", "Cf")


def punctuation(char):
    code = ord(char)
    if (33 <= code <= 47) or (58 <= code <= 64) or (91 <= code <= 96) or (123 <= code <= 126):
        return True
    return unicodedata.category(char).startswith("P")


def clean(text):
    output = []
    for char in text:
        code = ord(char)
        if code == 0 or code == 0xFFFD or control(char):
            continue
        output.append(" " if whitespace(char) else char)
    return "".join(output)


def space_around_chinese(text):
    output = []
    for char in text:
        code = ord(char)
        if any(code in block for block in CHINESE):
            output.append(" ")
            output.append(char)
            output.append(" ")
        else:
            output.append(char)
    return "".join(output)


def without_accents(text):
    output = []
    for char in unicodedata.normalize("NFD", text):
        if unicodedata.category(char) == "Mn":
            continue
        output.append(char)
    return "".join(output)


def split_at_punctuation(text):
    output, new_word = [], True
    for char in text:
        if punctuation(char):
            output.append([char])
            new_word = True
        else:
            if new_word:
                output.append([])
            new_word = False
            output[-1].append(char)
    return ["".join(chars) for chars in output]


def basic(text, lower=True, strip=None, chinese=True):
    strip = lower if strip is None else strip
    text = clean(text)
    if chinese:
        text = space_around_chinese(text)
    output = []
    for word in text.split():
        if lower:
            word = word.lower()
        if strip:
            word = without_accents(word)
        output.extend(split_at_punctuation(word))
    return " ".join(output).split()


def wordpiece(word, vocab):
    chars = list(word)
    if len(chars) > 200:
        return ["[UNK]"]
    output, start = [], 0
    while start < len(chars):
        end, found = len(chars), None
        while start < end:
            piece = "".join(chars[start:end])
            if start > 0:
                piece = "##" + piece
            if piece in vocab:
                found = piece
                break
            end -= 1
        if found is None:
            return ["[UNK]"]
        output.append(found)
        start = end
    return output


def tokenize(text, vocab, lower=True, strip=None, chinese=True):
    return [piece for word in basic(text, lower, strip, chinese) for piece in wordpiece(word, vocab)]
