"""The broker: takes messages, keeps them, hands them out; tables, rules and handlers."""
