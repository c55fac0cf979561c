"""Quality and suppression of estimates, and ends of intervals of shares."""
