"""Agents of other frameworks, each run within a brief: its budget, deadline, tools and delegation are the remit's."""
