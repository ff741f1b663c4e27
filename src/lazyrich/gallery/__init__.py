"""The gallery of claims: studies of the literature, run, judged and shown on one page."""
