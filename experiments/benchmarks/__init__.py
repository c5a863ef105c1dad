"""What things cost: ratios measured in one run, comparisons with peers, and endurance."""
