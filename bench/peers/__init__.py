"""The other systems: how each is started and measured."""
