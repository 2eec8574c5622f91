"""The faults of the page of known faults, by what they are faults of."""
