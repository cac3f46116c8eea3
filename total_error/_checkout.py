"""Names of the laboratory's modules, settled before the first of them is imported."""

from total_error._names import claim

claim()
