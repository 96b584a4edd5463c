"""Numbers and texts as a reader sees them: digits, shares, times, counts, every character."""

import math
import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

SPACE = "\N{NO-BREAK SPACE}"  # Between a number and its unit: lines do not break here.
LONGEST = 200  # Longest text of one label, token or name; longer ones are cut.

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Controls, line and paragraph separators, embeddings and overrides of the direction of writing,
# surrogates and noncharacters: none of them shows, and some change how their neighbours show.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def count(n: int) -> str:
    """``12,345``."""
    return f"{n:,}"


def count_of(n: int, one: str, many: str = "") -> str:
    """``1 pass``, ``2 passes``."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def power_of_ten(power: int) -> str:
    """``10⁻³``."""
    return "10" + str(power).translate(_RAISED)


def significant(value: float, digits: int = 4) -> str:
    """A number by its significant digits; very large and very small ones by powers of ten."""
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0.0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -4 <= power < 7:
        shown = f"{value:,.{max(digits - 1 - power, 0)}f}"
    else:
        shown = f"{mantissa} × {power_of_ten(power)}"
    return shown.replace("-", "−")


def brief(value: float, digits: int = 3) -> str:
    """A number by so many significant digits at most, without zeros at its end."""
    number, *power = significant(value, digits).split(" × ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return " × ".join([number, *power])


def decimal(value: float, decimals: int) -> str:
    """A number with so many decimals and a proper minus sign; zero has no sign."""
    return f"{value:z,.{decimals}f}".replace("-", "−")


def decimals_for(size: float, digits: int) -> int:
    """Decimals that give a number of this size so many significant digits, at most eight."""
    if size == 0.0 or not math.isfinite(size):
        return 0
    return min(8, max(0, digits - 1 - math.floor(math.log10(abs(size)))))


def percent(share: float, decimals: int = 2) -> str:
    """A share as ``12.34 %``."""
    return f"{decimal(100.0 * share, decimals)}{SPACE}%"


def percent_at_most(share: float) -> str:
    """A bound in per cent, two significant digits, rounded up so that it stays a bound."""
    if not math.isfinite(100.0 * share):
        return f"{significant(100.0 * share)}{SPACE}%"
    value = Decimal(f"{100.0 * share:.12g}")  # 0.8 stays 0.8, whatever its last bit is
    if value == 0:
        return f"0{SPACE}%"
    up = value.quantize(Decimal(1).scaleb(value.adjusted() - 1), rounding=ROUND_CEILING)
    return f"{significant(float(up), 2)}{SPACE}%"


def bound_text(share: float) -> str:
    """The same for terminals, with a plain space."""
    return percent_at_most(share).replace(SPACE, " ")


def seconds(value: float) -> str:
    """A time as it would be said."""
    if value < 0.1:
        return f"{significant(1000.0 * value, 2)}{SPACE}ms"
    if value < 10:
        return f"{value:.2f}{SPACE}s"
    if value < 100:
        return f"{value:.1f}{SPACE}s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    return shown.replace(" ", SPACE)


def reveal(value: Any) -> str:
    """A value as text in which every invisible character shows."""
    return _INVISIBLE.sub(_picture, str(value))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the pictures of control characters
    if code == 0x7F:
        return "␡"
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"⟨U+{code:04X}⟩"


def show(value: Any, longest: int = LONGEST) -> str:
    """A user's label, token or name: revealed, cut where it is long, never blank."""
    content = str(value)
    if not content:
        return "(empty)"
    if len(content) > longest:
        content = content[:longest] + "…"
    if content.isspace():
        content = content.replace(" ", "␠").replace("\u00a0", "⟨U+00A0⟩")
    return reveal(content)
