"""The explorer: pages of sliders over the theory, served to a browser on the same machine.

`settings`, `linear`, `two_layer` and `depth` say, without any widget, what a page asks and what it draws; links,
exports and tests use them directly. The other modules put widgets around them.
"""
