"""What is shown live, without a screen: row stores, column specs, the Watch subscription, log pages.

The command line's tables and `--watch` and the console's widgets stand on the same modules, so a view exists once. Nothing
here may import Textual, grpc or click, read a clock by itself, or print.
"""
