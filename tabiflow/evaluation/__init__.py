"""The generative benchmark with a model: rows are asked of a server, answers kept and scored.

What is asked and how answers are scored, `tabiflow.generative` knows; who answers, `serving` and
`endpoint`. A task of a model is a trial of the same ledger as any other.
"""
