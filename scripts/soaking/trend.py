"""The slope of a sampled quantity, with an interval, and the verdict on its growth.

The samples are cut into blocks of equal length. The slope is the median of the slopes between all
pairs of block medians (Theil 1950, Sen 1968), and its interval comes from the distribution of
Kendall's S. Memory keeps its level for a while, so that successive blocks are alike: the variance
of S is multiplied by the factor that an AR(1) process with the lag-1 correlation of the blocks has
(Hamed and Rao 1998). A single step in a level thus widens the interval and is no growth.
"""

import math
import statistics
from dataclasses import dataclass

MOST_BLOCKS = 24
FEWEST_BLOCKS = 8
HOUR = 3600


@dataclass(frozen=True)
class Trend:
    """A slope with its interval, in units an hour. `level` is the fitted value at the first sample."""

    slope: float
    low: float
    high: float
    level: float
    hours: float

    def percent(self, slope):
        return 100 * slope / max(abs(self.level), 1)


def trend(times, values, confidence=0.95):
    """Returns the trend of `values` at `times` in seconds. None if there are too few samples."""
    count = min(MOST_BLOCKS, len(times) // 2)
    if count < FEWEST_BLOCKS:
        return None
    cuts = [round(index * len(times) / count) for index in range(count + 1)]
    parts = [slice(begin, end) for begin, end in zip(cuts, cuts[1:])]
    at = [statistics.fmean(times[part]) / HOUR for part in parts]
    level = [statistics.median(values[part]) for part in parts]
    hours = (times[-1] - times[0]) / HOUR
    slopes = sorted(
        (level[late] - level[early]) / (at[late] - at[early])
        for late in range(count)
        for early in range(late)
    )
    slope = statistics.median(slopes)
    start = statistics.median(y - slope * (x - at[0]) for x, y in zip(at, level))
    if slopes[0] == slopes[-1]:
        return Trend(slope, slope, slope, start, hours)
    rest = [y - slope * x for x, y in zip(at, level)]
    variance = count * (count - 1) * (2 * count + 5) / 18 * inflation(rest)
    width = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance)
    below = math.floor((len(slopes) - width) / 2)
    if below < 0:
        return Trend(slope, -math.inf, math.inf, start, hours)
    return Trend(slope, slopes[below], slopes[len(slopes) - 1 - below], start, hours)


def inflation(rest):
    """Returns the factor by which the correlation of successive residuals raises the variance."""
    mean = statistics.fmean(rest)
    away = [value - mean for value in rest]
    power = sum(value * value for value in away)
    if power == 0:
        return 1
    lag = sum(a * b for a, b in zip(away, away[1:])) / power
    # The estimate from a short, detrended series is too low (Kendall 1954).
    lag += (1 + 4 * lag) / len(rest)
    lag = min(max(lag, 0), 0.95)
    return (1 + lag) / (1 - lag)


def verdict(found, bound):
    """Returns `growth`, `no growth`, or `undecided` with the hours that would decide. `bound` is in
    percent of the level an hour."""
    if found is None:
        return "undecided", None
    low, high = found.percent(found.low), found.percent(found.high)
    if low > bound:
        return "growth", None
    if high < bound:
        return "no growth", None
    slope = found.percent(found.slope)
    away = max(slope - low, high - slope) / max(abs(bound - slope), bound / 10)
    # The error of a slope falls with the length to the power of 3/2.
    return "undecided", found.hours * away ** (2 / 3) if math.isfinite(away) else None
