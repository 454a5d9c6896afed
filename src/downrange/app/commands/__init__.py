"""The commands of `downrange` that operate a cluster: one module a noun, typer outside."""
