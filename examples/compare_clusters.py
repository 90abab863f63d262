"""Which cluster trains a model cheapest? The best plan on each, in one table.

python examples/compare_clusters.py
"""

import trainwright
from trainwright.errors import InfeasiblePlan

rows = []
for cluster in ("a100:64", "h100:64", "h200:64", "mi300x:64", "gb200:72"):
    try:
        best = trainwright.plan("llama3-8b", cluster, batch=576, tokens="1T", top=1).best
    except InfeasiblePlan as error:
        print(f"{cluster}: {error}")
        continue
    rows.append((best.budget.dollars, cluster, best))
for dollars, cluster, best in sorted(rows, key=lambda row: row[0]):
    print(
        f"{cluster:10} {dollars:12,.0f} $  {best.budget.days:6.1f} days  MFU {best.mfu:5.1%}  {best.strategy}"
    )
