"""Numbers as text."""

from __future__ import annotations

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(exponent: int) -> str:
    """10⁻³"""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def number(x: float | None, digits: int = 3) -> str:
    """With so many significant digits: 0.0123, 1,240, 4.32·10¹³."""
    if x is None or not math.isfinite(x):
        return "–"
    if x == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{x:.{digits - 1}e}"))))
    if -3 <= exponent < 6:
        return minus(f"{x:,.{max(0, digits - 1 - exponent)}f}")
    mantissa = f"{x / 10.0**exponent:.{digits - 1}f}" if exponent > -300 else "0"
    return minus(f"{mantissa}·{power(exponent)}")


def spread(mean: float | None, std: float | None, digits: int = 3) -> str:
    """mean ± standard deviation, the latter with two digits and both to the same place. A line may
    be broken before the sign, not after it."""
    if mean is None or not math.isfinite(mean):
        return "–"
    if std is None or not math.isfinite(std):
        return number(mean, digits)
    if std == 0:
        return f"{number(mean, digits)} ±\N{NO-BREAK SPACE}0"
    largest = float(f"{max(abs(mean), std):.{digits - 1}e}")
    exponent = math.floor(math.log10(largest))
    if not -3 <= exponent < 6:
        a, b = mean / 10.0**exponent, std / 10.0**exponent
        return minus(f"({a:.2f} ±\N{NO-BREAK SPACE}{b:.2f})·{power(exponent)}")
    decimals = min(max(0, 1 - math.floor(math.log10(std))), max(0, digits - 1 - exponent) + 1)
    return minus(f"{mean:,.{decimals}f} ±\N{NO-BREAK SPACE}{std:,.{decimals}f}")


def minus(text: str) -> str:
    return text.replace("-", "−")


def tick(x: float, _: object = None) -> str:
    """The label of a tick of a logarithmic axis: powers of ten, and nothing between them."""
    if x <= 0:
        return ""
    exponent = math.log10(x)
    if abs(exponent - round(exponent)) > 1e-9:
        return ""
    exponent = round(exponent)
    return {-2: "0.01", -1: "0.1", 0: "1", 1: "10", 2: "100"}.get(exponent, power(exponent))


def tolerance(x: float) -> str:
    """10⁻⁷, or 3·10⁻⁷"""
    exponent = math.floor(math.log10(x) + 1e-9)
    mantissa = f"{x / 10.0**exponent:.3g}"
    return power(exponent) if mantissa == "1" else f"{mantissa}·{power(exponent)}"


def sentence(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]


def listing(items: list[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)
