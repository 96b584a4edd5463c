"""Numbers in words and figures: significant digits, shares, times, counts."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def count(n: int) -> str:
    """``12,345``."""
    return f"{n:,}"


def counted(n: int, one: str, many: str = "") -> str:
    """``1 pass``, ``2 passes``."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


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
        shown = f"{mantissa} × 10{str(power).translate(_RAISED)}"
    return shown.replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals and a proper minus sign; zero has no sign."""
    shown = f"{value:,.{decimals}f}"
    if float(shown.replace(",", "")) == 0.0:
        shown = shown.lstrip("-")
    return shown.replace("-", "−")


def percent(share: float, decimals: int = 2) -> str:
    """A share as ``12.34 %``."""
    return f"{fixed(100.0 * share, decimals)} %"


def percent_at_most(share: float) -> str:
    """A bound in per cent, two significant digits, rounded up so that it stays a bound."""
    value = Decimal(f"{100.0 * share:.12g}")  # 0.8 stays 0.8, whatever its last bit is
    if value == 0:
        return "0 %"
    up = value.quantize(Decimal(1).scaleb(value.adjusted() - 1), rounding=ROUND_CEILING)
    return f"{significant(float(up), 2)} %"


def seconds(value: float) -> str:
    """A time as it would be said."""
    if value < 0.1:
        return f"{significant(1000.0 * value, 2)} ms"
    if value < 10:
        return f"{value:.2f} s"
    if value < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def listed(items: list[str], last: str = "and") -> str:
    """``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
