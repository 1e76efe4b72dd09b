"""SGLang: the results of its load generator."""
