MODELS = ()
