"""What the user's tables hold, and what looks wrong in them, before anything runs."""
