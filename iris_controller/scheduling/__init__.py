"""The scheduler: a pure, resumable function from the model to a plan. Places nothing itself; the kernel applies its plans."""
