"""Agents of other frameworks, each run within a brief: the remit sets its budget, deadline, tools and delegation."""
