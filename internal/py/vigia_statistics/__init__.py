"""Statistics for comparing measurements of network paths.

The experimental unit is the run, or a fixed window of a live series, never the
packet: pass one number per run. Methods assume no distribution; Welch's test
and the t-interval stand beside them because papers print them.

Every function takes one-dimensional arrays of finite numbers in any unit and
answers in that unit. Bad input raises ``ValueError`` naming argument and fault.
"""

from vigia_statistics.intervals import (
    Interval,
    ecdf_band,
    mean_interval,
    median_interval,
    quantile_interval,
)
from vigia_statistics.loss import loss_interval, minimum_detectable_loss
from vigia_statistics.multiplicity import holm
from vigia_statistics.paired import SignedRank, signed_rank
from vigia_statistics.power import Power, signed_rank_power, smallest_number
from vigia_statistics.ranged import bootstrap_interval, geometric_interval
from vigia_statistics.twosample import RankSum, Welch, minimum_detectable_shift, rank_sum, welch
from vigia_statistics.verdict import (
    Comparison,
    Direction,
    Verdict,
    compare,
    judge,
    winner,
    with_differences,
)

__all__ = [
    "Comparison",
    "Direction",
    "Interval",
    "Power",
    "RankSum",
    "SignedRank",
    "Verdict",
    "Welch",
    "bootstrap_interval",
    "compare",
    "ecdf_band",
    "geometric_interval",
    "holm",
    "judge",
    "loss_interval",
    "mean_interval",
    "median_interval",
    "minimum_detectable_loss",
    "minimum_detectable_shift",
    "quantile_interval",
    "rank_sum",
    "signed_rank",
    "signed_rank_power",
    "smallest_number",
    "welch",
    "winner",
    "with_differences",
]
