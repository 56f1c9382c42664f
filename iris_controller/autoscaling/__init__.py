"""The autoscaler: which slices there should be, and the hands that make and delete them (control-plane §3).

`demand`, `routing`, `planning`, `backoff`, `rates`, `lifecycle` and `verdict` are pure: values in, plan out. `runner` looks, asks
them, writes what they decide through the controller's one queue, and calls the provider.
"""
