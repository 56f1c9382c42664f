"""What follows from evidence: pure functions over lines and figures that somebody else has fetched."""
