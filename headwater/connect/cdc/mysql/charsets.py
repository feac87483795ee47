"""Character sets as MySQL and MariaDB have them, where Python's codecs of the same name decode otherwise. Pure."""

import codecs
from collections.abc import Mapping

# Characters that the servers read otherwise than Python does.
_OTHERWISE: Mapping[str, Mapping[int, int | str]] = {
    "cp866": {0x2116: "\u207f", 0xA4: "\u00b2"},
    "dec8": {0xA8: "\u00a4", 0xD7: "\u0152", 0xDD: "\u0178", 0xF7: "\u0153", 0xFD: "\u00ff"},
    "eucjpms": {
        0x301C: "\uff5e", 0x2016: "\u2225", 0x2212: "\uff0d", 0xA2: "\uffe0", 0xA3: "\uffe1", 0xAC: "\uffe2",
    },
    "greek": {0x2018: "\u02bd", 0x2019: "\u02bc"},
    "hebrew": {0xAF: "\u203e"},
    "koi8u": {0x2219: "\u2022"},
    "sjis": {0xFF3C: "\\"},
    "swe7": str.maketrans("@[\\]^`{|}~", "\u00c9\u00c4\u00d6\u00c5\u00dc\u00e9\u00e4\u00f6\u00e5\u00fc"),
    "ujis": {0xFF3C: "\\"},
}  # fmt: skip
_ERRORS = {"big5": "mysql_big5", "ujis": "mysql_euc", "eucjpms": "mysql_euc"}
_USERS_OWN = 0xE000  # characters that have no meaning but what their users give them


def decoded(raw: bytes, charset: str | None, codec: str) -> str:
    """Text in a character set.

    >>> decoded(bytes.fromhex("815f"), "sjis", "shift_jis"), decoded(bytes.fromhex("ada1a1c1"), "eucjpms", "euc_jp")
    ('\\\\', '\u2460\uff5e')
    """
    text = raw.decode(codec, _ERRORS.get(charset or "", "replace"))
    otherwise = _OTHERWISE.get(charset or "")
    return text if otherwise is None else text.translate(dict(otherwise))


def is_as_in_python(charset: str) -> bool:
    """Whether what Python encodes is what the server has."""
    return charset not in _OTHERWISE and charset not in _ERRORS


def _big5(error: UnicodeError) -> tuple[str, int]:
    """Seven characters that came later are Microsoft's."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.start + 2].decode("cp950", "replace")[:1], error.start + 2


def _euc(error: UnicodeError) -> tuple[str, int]:
    """NEC's and IBM's characters, which Microsoft's Shift-JIS has at the same place; and the users' own."""
    assert isinstance(error, UnicodeDecodeError)
    at, first = error.start, _USERS_OWN
    of_second_set = error.object[at] == 0x8F
    if of_second_set:
        at, first = at + 1, _USERS_OWN + 10 * 94
    pair = error.object[at : at + 2]
    if len(pair) < 2 or min(pair) < 0xA1 or max(pair) > 0xFE:
        return "\ufffd", error.start + 1
    row, cell = pair[0] - 0xA1, pair[1] - 0xA1
    if row >= 84:
        return chr(first + (row - 84) * 94 + cell), at + 2
    if of_second_set:
        return "\ufffd", at + 2
    lead = (row >> 1) + (0x81 if row < 62 else 0xC1)
    trail = cell + (0x9F if row & 1 else 0x40 if cell < 63 else 0x41)
    return bytes((lead, trail)).decode("cp932", "replace")[:1], at + 2


codecs.register_error("mysql_big5", _big5)
codecs.register_error("mysql_euc", _euc)
