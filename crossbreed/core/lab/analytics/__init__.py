"""Router analytics: what the routers of a trained model decide, what it has to do with the loss, and what experts do.

Everything is taken from a task's fixed evaluation items at one operating point, in float64 sums over tokens, so that no
batch size changes it. Results are plain data, one mapping for each kind of finding; ``docs/router-analytics.md`` defines
every number.

Legend, beside the package's: M tokens of all rows looked at, in order.
"""

from crossbreed.core.lab.analytics.findings import VERSION, Findings, analyse
from crossbreed.core.lab.analytics.subject import Subject, few_rows

__all__ = ["VERSION", "Findings", "Subject", "analyse", "few_rows"]
