"""The comparison of discounts."""
