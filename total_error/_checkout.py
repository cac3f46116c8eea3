"""Setup of the laboratory's module names, before the first of these modules is imported."""

from total_error._names import claim

claim()
