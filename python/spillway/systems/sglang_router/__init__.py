"""SGLang's router: its policies, its limit and its queue."""
