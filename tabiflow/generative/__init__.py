"""Generative evaluation without a model and without a network: what is asked, how answers are
scored, and what the scores say. Whoever has a server asks it the items of `prompts` and hands the
answers to `scoring` and `metrics`.
"""
