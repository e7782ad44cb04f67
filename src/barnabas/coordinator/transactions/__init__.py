"""PURE: the transaction coordinator: its rules, its records, the machine of one partition."""
