"""What the paper says of its results, and what the records say to it.

==============  ========================================================================
``statements``  what the paper says, as data
``intervals``   a mean over the seeds, and what it is worth
``summaries``   how good, how soon and at what price: the rows of the table
``trials``      which rate a method got, and why
``verdicts``    does a claim hold?
``outcomes``    all of that for the runs on one data set
==============  ========================================================================
"""

from __future__ import annotations

from evodrop.experiments.claims.statements import CLAIMS, METRICS, Claim, Metric, claims_of

__all__ = ["CLAIMS", "METRICS", "Claim", "Metric", "claims_of"]
