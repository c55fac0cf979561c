"""Faults injected into real runs, and their outcomes.

``python -m tests.chaos --faults 20 --seed 0 --out FOLDER`` starts runs as processes of
their own, hurts each in one way at a seeded moment, and lets an ordinary run follow.
Every published value is compared with those of an undisturbed run.
"""
