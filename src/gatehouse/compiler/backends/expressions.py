"""Regular expressions of users: the subset of RE2 that every supported proxy accepts. No I/O."""

from __future__ import annotations

import functools
import re

import re2

from gatehouse.compiler.backends.failures import InvalidValueError
from kube_base.runtime.quiet_re2 import quiet_options

_CATEGORIES = re.compile(r"C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")

_SCRIPTS = frozenset(
    """
    Any Arabic Armenian Balinese Bengali Bopomofo Braille Buginese Buhid Canadian_Aboriginal Carian
    Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Ethiopic Georgian
    Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Inherited Kannada
    Katakana Kayah_Li Kharoshthi Khmer Lao Latin Lepcha Limbu Linear_B Lycian Lydian Malayalam
    Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Oriya Osmanya Phags_Pa
    Phoenician Rejang Runic Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog
    Tagbanwa Tai_Le Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Vai Yi
    """.split()  # noqa: SIM905
)
"""Scripts of Unicode 5.1. The tables of a connected proxy may be older than those of this process,
and PCRE 1 ends with Unicode 7."""

_ESCAPE = re.compile(r"\\(?:[pP](?:\{\^?([^}]*)\}|(.))|.)", re.DOTALL)


def _options() -> re2.Options:
    options = quiet_options()
    # Proxies match bytes: no code point is above \xff, and names of groups are ASCII.
    options.encoding = re2.Options.Encoding.LATIN1
    return options


_OPTIONS = _options()


@functools.lru_cache(maxsize=256)
def _compiled(value: str) -> re2._Regexp[bytes]:
    return re2.compile(value.encode(), _OPTIONS)


def compile_expression(value: str, what: str) -> re2._Regexp[bytes]:
    """Compile an expression as Envoy does.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    try:
        return _compiled(value)
    except UnicodeError as error:
        raise InvalidValueError(f"{what}: regular expression is not valid Unicode") from error
    except re2.error as error:
        (problem,) = error.args
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise InvalidValueError(
            f"{what}: regular expression is not valid for RE2: {text}"
        ) from error


def check_expression(value: str, what: str) -> re2._Regexp[bytes]:
    """Compile a user's expression with properties that every proxy has.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    compiled = compile_expression(value, what)
    for escape in _ESCAPE.finditer(value) if "\\" in value else ():
        name = escape[1] or escape[2]
        if name and not _CATEGORIES.fullmatch(name) and name not in _SCRIPTS:
            raise InvalidValueError(
                f"{what}: regular expression has the property {name}: must be a category or a "
                "script of Unicode 5.1, which every proxy knows"
            )
    return compiled
