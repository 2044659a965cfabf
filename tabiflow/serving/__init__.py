"""Generative models on Ray Serve: replicas of vLLM, or of an embedded engine where vLLM cannot run.

One engine a model, whatever is asked of it. The only package that imports `ray.serve`; `start`
does without, so that a server that somebody else runs can be asked at once.
"""
